"""The screen of pools, and what executors and jobs say of theirs."""

from __future__ import annotations

import re

import pytest
from django.urls import reverse

from dashboards.metrics.samples import Value, read_samples
from jobs.features.pools.pools import save_pool
from jobs.models import Executor, Pool, PoolSweep
from queueops.audit.models import AuditEntry
from tests.factories import make_job, make_jobs
from tests.support.cases import every_case
from tests.support.people import signed_in

pytestmark = pytest.mark.django_db

LIST, ADD = reverse("admin:jobs_pool_changelist"), reverse("admin:jobs_pool_add")
GIVEN = {"name": "llm", "services": "gemini, openai", "kinds": "", "projects": "", "place": "100"}


def text_of(response) -> str:
    """The page as people read it."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", response.content.decode()))


def serve(pool: str = "") -> None:
    Executor.objects.create(pid=1, process_started_at=0.0, cluster_pid=1, slots=9, role="general", pool=pool)


def test_the_list_shows_what_each_pool_serves_who_serves_it_and_what_waits():
    assert "There are no pools." in text_of(signed_in("viewer").get(LIST))
    save_pool("slow", kinds=["slow.*"], projects=["*"], actor="user:1")
    make_jobs(3, kind="slow.read")
    make_job(kind="quick.read")
    viewer = signed_in("viewer")
    shown = text_of(viewer.get(LIST))
    assert "kinds: slow.*; projects: *" in shown
    assert "no cluster" in shown
    assert "Waiting jobs that no pool names: 1; no cluster without a pool is running, so they wait." in shown
    serve("slow")
    assert "1 executor of 1 cluster" in text_of(viewer.get(LIST))
    serve()
    assert "carried out by 1 executor without a pool" in text_of(viewer.get(LIST))
    executors = text_of(viewer.get(reverse("admin:jobs_executor_changelist")))
    assert "pool slow" in executors
    assert "all jobs" in executors
    assert "pool slow" not in text_of(viewer.get(f"{reverse('admin:jobs_executor_changelist')}?pool=other"))


def test_an_administrator_adds_changes_and_deletes_a_pool_and_each_is_audited():
    person = signed_in("administrator")
    assert person.post(ADD, GIVEN).status_code == 302
    assert (Pool.objects.get().services, PoolSweep.objects.get().passes) == (["gemini", "openai"], 0)
    page = reverse("admin:jobs_pool_change", args=["llm"])
    assert person.post(page, {**GIVEN, "name": "other", "place": "5"}).status_code == 302
    assert (Pool.objects.get().name, Pool.objects.get().place) == ("llm", 5)
    assert "change_pool" in text_of(person.get(page)) or "place" in text_of(person.get(page))
    serve("llm")
    delete = reverse("admin:jobs_pool_delete", args=["llm"])
    refused = person.post(delete, {"post": "yes"}, follow=True)
    assert "1 live executor serves pool llm: stop its clusters first." in text_of(refused)
    Executor.objects.all().delete()
    assert "deleted successfully" in text_of(person.post(delete, {"post": "yes"}, follow=True))
    assert list(AuditEntry.objects.order_by("pk").values_list("action", flat=True)) == [
        "add_pool",
        "change_pool",
        "delete_pool",
    ]


@every_case(
    ("wrong", "said"),
    [
        ({"name": "LLM"}, "small letters"),
        ({"services": "a b"}, "is no name"),
        ({"projects": "nobody"}, "There is no project nobody"),
        ({"place": "x"}, "whole number"),
        ({"services": "x" * 101}, "100"),
        ({"services": ",,"}, "Name a service"),
        ({"kinds": "<script>alert(1)</script>"}, "is no name"),
    ],
    undone=True,
)
def test_wrong_input_is_told_at_its_field_and_changes_nothing(wrong, said):
    answer = signed_in("administrator").post(ADD, GIVEN | wrong)
    assert answer.status_code == 200
    assert said in text_of(answer)
    assert b"<script>alert" not in answer.content
    assert not Pool.objects.exists()


@every_case("role", ["viewer", "operator"], undone=True)
def test_others_may_see_pools_and_not_change_them(role):
    save_pool("llm", kinds=["x"], actor="user:1")
    person = signed_in(role)
    assert person.post(ADD, GIVEN | {"name": "other"}).status_code == 403
    assert person.post(reverse("admin:jobs_pool_delete", args=["llm"]), {"post": "yes"}).status_code == 403
    assert list(Pool.objects.values_list("name", flat=True)) == ["llm"]


def test_metrics_tell_the_depth_of_each_pool():
    assert not [sample for sample in read_samples() if sample.metric.startswith("pool_")]
    save_pool("slow", kinds=["slow.*"], actor="user:1")
    make_jobs(3, kind="slow.read")
    make_job(kind="quick.read")
    serve("slow")
    found = {(one.metric, one.labels): one.value for one in read_samples() if isinstance(one, Value)}
    assert found["pool_jobs", ("slow", "ready")] == 3
    assert found["pool_jobs", ("", "ready")] == 1
    assert found["pool_executors", ("slow",)] == 1
    assert found["pool_oldest_seconds", ("slow",)] >= 0
