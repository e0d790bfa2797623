"""Where objectives are shown: the admin, the API, the dashboard and the metrics say the same."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from dashboards.metrics.samples import Value, read_samples
from dashboards.services.ops import ops_snapshot
from dashboards.services.shared import cache
from jobs.features.objectives.objectives import MAX_OBJECTIVES
from jobs.features.objectives.watch import begin_objectives, watch_objectives
from jobs.models import Job, Objective, ObjectiveSample
from queueops.audit.models import AuditEntry
from queueops.tenancy.models import ProducerKey
from tests.factories import make_project
from tests.support.flow import count_all
from tests.support.objectives import an_objective, jobs_that
from tests.support.people import signed_in

pytestmark = pytest.mark.django_db(transaction=True)

LIST, ADD = reverse("admin:jobs_objective_changelist"), reverse("admin:jobs_objective_add")
GIVEN: dict[str, Any] = {
    "name": "imports", "aim": "start", "percent": "95", "within_seconds": "300", "project": "acme", "kind": "",
    "service": "", "window_days": "28", "note": "", "reason": "asked for by sales",
}  # fmt: skip


@pytest.fixture(autouse=True)
def counted() -> None:
    count_all()
    cache.forget_all()


def one_in_ten_missed() -> Objective:
    """Of acme's; and one of another project, which a key of acme is not told of."""
    objective = an_objective(name="imports", project=make_project("acme"), percent=Decimal(80))
    an_objective(name="of others", project=make_project("beta"))
    jobs_that(began_ago=400, project="acme")
    jobs_that(began_ago=400, project="beta")
    count_all()
    for sample in ObjectiveSample.objects.filter(objective=objective):  # the deadlines of nine others, which met it
        ObjectiveSample.objects.filter(pk=sample.pk).update(due=10, met=9)
    return objective


def test_an_administrator_makes_changes_and_deletes_one_and_each_is_audited():
    make_project("acme")
    person = signed_in("administrator")
    assert person.post(ADD, GIVEN).status_code == 302
    made = Objective.objects.get()
    assert (made.name, made.percent, made.within_seconds, made.project_id) == ("imports", Decimal(95), 300, "acme")
    page = reverse("admin:jobs_objective_change", args=[made.pk])
    assert person.post(page, {**GIVEN, "percent": "99"}).status_code == 302
    assert Objective.objects.get().percent == Decimal(99)
    assert "asked for by sales" in person.get(page).content.decode()
    assert person.post(reverse("admin:jobs_objective_delete", args=[made.pk]), {"post": "yes"}).status_code == 302
    assert not Objective.objects.exists()
    actions = AuditEntry.objects.filter(target=f"objective {made.pk}").order_by("pk").values_list("action", flat=True)
    assert list(actions) == ["create_objective", "change_objective", "delete_objective"]


def test_the_form_says_what_is_missing_and_success_needs_no_time():
    make_project("acme")
    person = signed_in("administrator")
    refused = person.post(ADD, {**GIVEN, "within_seconds": ""})
    assert "Say within how many seconds." in refused.content.decode()
    beyond = person.post(ADD, {**GIVEN, "percent": "100"}).content.decode()
    assert "Ensure this value is less than or equal to 99.999." in beyond
    assert person.post(ADD, {**GIVEN, "aim": "succeed"}).status_code == 302
    assert Objective.objects.get().within_seconds is None


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_others_see_it_and_change_nothing(role):
    objective = one_in_ten_missed()
    client = signed_in(role)
    assert "imports" in client.get(LIST).content.decode()
    page = reverse("admin:jobs_objective_change", args=[objective.pk])
    assert client.get(page).status_code == 200
    assert client.post(page, {**GIVEN, "percent": "99"}).status_code == 403
    assert client.get(ADD).status_code == 403


def test_every_surface_says_the_same():
    objective = one_in_ten_missed()
    shown = signed_in("viewer").get(LIST).content.decode()
    page = signed_in("viewer").get(reverse("admin:jobs_objective_change", args=[objective.pk])).content.decode()
    for text in (shown, page):
        assert "90 %" in text
        assert "50 %" in text  # of the budget is left
    assert "80 % start within 5 min: jobs of acme" in page
    _, key = ProducerKey.issue(make_project("acme"), name="test", scopes=["read"])
    [answer] = Client(headers={"Authorization": f"Bearer {key}"}).get("/api/v1/objectives/").json()["objectives"]
    assert (answer["name"], answer["jobs"], answer["missed"]) == ("imports", 10, 1)
    assert (answer["attained_percent"], answer["budget_left_percent"]) == (90.0, 50.0)
    row = next(one for one in ops_snapshot()["objectives"] if one["name"] == "imports")
    assert (row["attained_percent"], row["budget_left_percent"], row["is_broken"]) == (90.0, 50.0, False)
    samples = {(one.metric, *one.labels): one.value for one in read_samples() if isinstance(one, Value)}
    assert samples["objective_attained_ratio", "imports", "acme"] == pytest.approx(0.9)
    assert samples["objective_target_ratio", "imports", "acme"] == pytest.approx(0.8)
    assert samples["objective_budget_left_ratio", "imports", "acme"] == pytest.approx(0.5)
    assert samples["objective_burn_rate", "imports", "acme", "1 h"] == pytest.approx(0.5)


def test_the_api_shows_all_of_a_project_by_name_page_by_page():
    mine = {"within_seconds": 60, "project": make_project("acme")}
    names = [f"a {number:03}" for number in range(MAX_OBJECTIVES + 1)] + ["b", "c"]
    Objective.objects.bulk_create(Objective(name=name, **mine) for name in names)
    Objective.objects.create(name="a", within_seconds=60, project=make_project("other"))
    _, key = ProducerKey.issue(make_project("acme"), name="test", scopes=["read"])
    client, path, pages = Client(headers={"Authorization": f"Bearer {key}"}), "/api/v1/objectives/", []
    while path:
        page = client.get(path).json()
        pages.append([one["name"] for one in page["objectives"]])
        path = page["next"]
    assert [len(page) for page in pages] == [MAX_OBJECTIVES, 3]
    assert pages[0] + pages[1] == names
    few = client.get("/api/v1/objectives/?page_size=2").json()
    assert [one["name"] for one in few["objectives"]] == names[:2]
    assert client.get("/api/v1/objectives/?page_size=101").status_code == 400
    assert client.get("/api/v1/objectives/?cursor=zzz").status_code == 400


def test_one_without_jobs_says_so():
    made = Objective.objects.create(name="quiet", within_seconds=60)
    viewer = signed_in("viewer")
    assert "about to be counted" in viewer.get(LIST).content.decode()
    assert begin_objectives() == 1
    assert "without jobs" in viewer.get(LIST).content.decode()
    assert viewer.get(reverse("admin:jobs_objective_change", args=[made.pk])).status_code == 200
    row = ops_snapshot()["objectives"][0]
    assert (row["attained_percent"], row["budget_left_percent"]) == (None, None)


def test_the_longest_run_is_measured():
    jobs_that(began_ago=1, start=True)
    Job.objects.update(started_at=timezone.now() - timedelta(minutes=7))
    [value] = [one.value for one in read_samples() if isinstance(one, Value) and one.metric == "longest_run_seconds"]
    assert value == pytest.approx(420, abs=30)


def test_the_dashboard_shows_those_that_need_attention_first_and_how_many_more_there_are():
    late = an_objective(name="z", project=make_project("acme"))
    jobs_that(began_ago=400, project="acme")
    count_all()
    others = [Objective(name=f"a {number:03}", kind="none", within_seconds=60) for number in range(MAX_OBJECTIVES)]
    Objective.objects.bulk_create(others)
    watch_objectives()
    cache.forget_all()
    told = ops_snapshot()
    assert (told["objectives"][0]["name"], told["objectives"][0]["is_broken"]) == (late.name, True)
    assert len(told["objectives"]) + told["more_objectives"] == MAX_OBJECTIVES + 1
