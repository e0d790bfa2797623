"""Batches that stop themselves when too many of their first jobs fail for good with one code."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from django.urls import reverse
from django.utils import timezone
from pydantic import BaseModel

from jobs.features.batch_guards import guards
from jobs.features.batch_guards.watch import watch_guards
from jobs.features.dependencies.dependants import go_on
from jobs.features.unique import unique
from jobs.features.watches.paused import watch_paused
from jobs.handlers.errors import ProviderError
from jobs.handlers.registry import Done, RunningJob, handler
from jobs.models import Batch, Executor, Job, PauseSwitch
from jobs.services.explain.verdicts import verdicts_of
from jobs.services.explain.waiting import explain_waiting
from jobs.services.operate.pauses import pause_batch, resume_batch, settle_holds
from jobs.services.submit.submit import submit_batch
from jobs.states import BatchVerdict, GuardState
from jobs.testing import drain
from queueops.tenancy.models import Project
from ratelimits.models import QuotaAlert
from tests.api.conftest import Api, key_for
from tests.factories import make_jobs, make_project
from tests.support.people import signed_in

pytestmark = pytest.mark.django_db
FOUND = "failed for good with no_such_sheet"


class Sheet(BaseModel):
    bad: bool = False


@handler(kind="test.guarded", service="guarded", payload=Sheet, idempotent=True)
def guarded(job: RunningJob[Sheet]) -> Done:
    if job.payload.bad:
        raise ProviderError(404, "There is no such sheet.", code="no_such_sheet", outcome="answered")
    return Done({})


def lines_of(bad: list[bool], **fields: Any) -> list[dict[str, Any]]:
    return [{"kind": "test.guarded", "payload": {"bad": one}, **fields} for one in bad]


def submit(bad: list[bool], *, lines: list[dict[str, Any]] | None = None, **options: Any) -> Batch:
    make_project("acme", guard_percent=20)
    receipt = submit_batch(lines or lines_of(bad), project_id="acme", actor="key:test", **options)
    return Batch.objects.get(pk=receipt.id)


def states_of(batch: Batch) -> Counter[str]:
    return Counter(Job.objects.filter(batch=batch).values_list("status", flat=True))


def out_of(batch: Batch) -> int:
    return Job.objects.filter(batch=batch, held=False).count()


def tend(batch: Batch) -> GuardState:
    """A turn of the duty; what it lets go or stops is settled."""
    guards.tend_guards()
    batch.refresh_from_db()
    return GuardState(batch.guard_state)


def test_of_many_wrong_payloads_at_most_a_hundred_are_burnt_and_every_surface_says_why():
    batch = submit([True] * 205, name="import")
    assert out_of(batch) == 100
    worker = Executor.objects.create(pid=1, process_started_at=0.0, cluster_pid=1, slots=9, role="general")
    waits = explain_waiting(Job.objects.filter(batch=batch, held=True)[0])
    worker.delete()
    assert waits is not None
    told = [reason.text for reason in waits.reasons]
    assert told == ["the first jobs of its batch are tried: it goes on once 50 have ended well enough"]
    drain()
    batch.refresh_from_db()
    states = states_of(batch)
    assert (states["failed"] <= 100, states["failed"] + states["queued"]) == (True, 205)
    assert (batch.paused, batch.guard_state, out_of(batch)) == (True, "stopped", states["failed"])
    assert batch.guard is not None
    assert (batch.guard["code"], batch.guard["failed"] >= 10) == ("no_such_sheet", True)
    [judged] = verdicts_of([batch]).values()
    assert (judged.verdict, FOUND in str(judged.held_by)) == (BatchVerdict.HELD, True)
    api = Api(key_for("acme"))
    answer = api.get(f"/batches/{batch.pk}/").json()
    assert (answer["verdict"], answer["guard"]["state"], answer["guard"]["code"]) == (
        "held",
        "stopped",
        "no_such_sheet",
    )
    page = signed_in("operator").get(reverse("admin:jobs_batch_change", args=[batch.pk])).content.decode()
    assert FOUND in page
    for verb in ("resume", "cancel"):
        assert reverse(f"admin:jobs_batch_{verb}", args=[batch.pk]) in page
    watch_guards()
    PauseSwitch.objects.update(created_at=timezone.now() - timedelta(days=1))
    watch_paused()
    [alert] = QuotaAlert.objects.filter(resolved_at=None, kind__in=["guard", "forgotten"])
    assert (alert.kind, FOUND in alert.message, alert.figures["projects"]) == ("guard", True, ["acme"])
    # A person goes on: nothing stops it a second time.
    assert api.post(f"/batches/{batch.pk}/resume/", {}).status_code == 200
    watch_guards()
    assert not QuotaAlert.objects.filter(resolved_at=None, kind="guard").exists()
    assert (tend(batch), out_of(batch)) == (GuardState.WENT_ON, 205)
    assert (batch.guard_state, batch.paused) == ("went_on", False)


def test_a_batch_that_does_well_enough_goes_on_by_itself_whatever_comes_later():
    Project.objects.update_or_create(pk="acme", defaults={"guard_percent": 20, "guard_first": 10, "guard_over": 20})
    batch = submit([number == 3 for number in range(20)] + [True] * 20)
    [later] = make_jobs(1)
    Job.objects.filter(pk=later.pk).update(held=True)  # by a pause that is being taken off
    drain()
    assert Job.objects.get(pk=later.pk).held, "a guard let go what is not of its batch"
    batch.refresh_from_db()
    assert (states_of(batch), batch.guard_state) == ({"completed": 19, "failed": 21}, "passed")
    assert (batch.trial_until, batch.finished_at is not None) == (None, True)


def test_failures_count_by_their_code_and_a_small_batch_is_guarded_only_if_its_producer_says_so():
    small = submit([False] * 200)
    assert (small.guard, out_of(small)) == (None, 200)
    never = submit([False] * 300, guard_percent=0)
    assert (never.guard, out_of(never)) == (None, 300)
    Project.objects.update(guard_percent=30, guard_first=10, guard_over=20)
    of_project = submit([False] * 25)
    assert (of_project.guard, out_of(of_project)) == ({"first": 10, "percent": 30}, 20)
    Project.objects.update(guard_percent=0)
    assert submit([False] * 300).guard is None
    Job.objects.all().update(held=True)
    asked = submit([True] * 30, guard_percent=50, guard_first=5)
    assert (asked.guard, out_of(asked)) == ({"first": 5, "percent": 50}, 10)
    drain()
    asked.refresh_from_db()
    assert (asked.guard_state, states_of(asked)["failed"] <= 10) == ("stopped", True)


def test_what_has_its_own_time_or_waits_for_others_is_not_held_for_the_first():
    later = {"delay_seconds": 3600}
    batch = submit([], lines=[*lines_of([False] * 150, **later), *lines_of([False] * 150)])
    assert Job.objects.filter(batch=batch, held=True, scheduled_at__isnull=False).count() == 0
    assert out_of(batch) == 250


def keyed(numbers: range, name: str = "idempotency_key") -> list[dict[str, Any]]:
    return [
        {**line, name: f"line {number}"} for number, line in enumerate(lines_of([False] * len(numbers)), numbers.start)
    ]


@pytest.mark.parametrize("name", ["idempotency_key", "unique_key"])
@pytest.mark.parametrize("known", [60, 150, 600])
def test_lines_that_make_no_job_are_none_of_the_first(known: int, name: str):
    make_project("acme", guard_percent=20, guard_first=10, guard_over=20)
    submit([], lines=keyed(range(known), name), guard_percent=0)
    batch = submit([], lines=keyed(range(known + 300), name))
    assert (batch.total, out_of(batch), batch.guard_state) == (300, 20, GuardState.TRIAL)
    drain()
    batch.refresh_from_db()
    assert (states_of(batch), batch.guard_state) == ({"completed": 300}, GuardState.PASSED)


def test_a_line_that_is_inserted_at_a_second_try_is_not_held_behind_the_guard(monkeypatch: pytest.MonkeyPatch):
    make_project("acme", guard_percent=20, guard_first=10, guard_over=20)
    submit([], lines=keyed(range(1), "unique_key"), guard_percent=0)
    look = unique._holders

    def ends_meanwhile(*given: Any) -> Any:  # the older job ends between the insertion and the look at its key
        drain()
        return look(*given)

    monkeypatch.setattr(unique, "_holders", ends_meanwhile)
    batch = submit([], lines=[{**line, "unique_in": "kind"} for line in keyed(range(300), "unique_key")])
    first = Job.objects.filter(batch=batch).earliest("pk")
    assert (batch.total, first.unique_key, first.held) == (300, "test.guarded/line 0", False)
    drain()
    assert states_of(batch) == {"completed": 300}


def test_a_pause_and_the_guard_keep_apart_what_each_holds():
    batch = submit([False] * 300)
    pause_batch(batch.pk, actor="user:1", reason="a look")
    assert out_of(batch) == 0
    resume_batch(batch.pk, actor="user:1")
    assert (out_of(batch), tend(batch)) == (100, GuardState.TRIAL)
    settle_holds()
    assert out_of(batch) == 100
    # Impatience is a verb of its own.
    assert go_on([batch.pk], of_batch=True, actor="user:1", reason="I know them").moved == [batch.pk]
    assert (tend(batch), out_of(batch), batch.trial_until) == (GuardState.WENT_ON, 300, None)


def test_the_options_are_the_apis_too():
    make_project("acme", guard_percent=20)
    api = Api(key_for("acme"))
    body = {"jobs": lines_of([False] * 20), "guard_percent": 10, "guard_first": 4}
    batch = Batch.objects.get(pk=api.post("/batches/", body).json()["id"])
    assert (batch.guard, out_of(batch)) == ({"first": 4, "percent": 10}, 8)
    line = b'{"kind": "test.guarded"}\n'
    answer = api.lines(line * 20, "?guard_percent=10&guard_first=4")
    assert Batch.objects.get(pk=answer.json()["id"]).guard == {"first": 4, "percent": 10}
    assert api.lines(line, "?guard_percent=101").status_code == 400
