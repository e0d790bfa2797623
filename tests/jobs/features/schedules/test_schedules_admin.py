"""Schedules in the admin: made, changed, steered and deleted by whoever may."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from django.urls import reverse
from django.utils.html import escape

from jobs.features.schedules.fire_schedules import fire_schedules
from jobs.models import Job, Schedule
from queueops.audit.models import AuditEntry
from queueops.core.values.masking import MASK
from queueops.screens.admin import CHANGED_MEANWHILE
from queueops.tenancy.models import Project
from queueops.tenancy.secrets.encryption import forget_encrypted
from tests.api.conftest import Api, key_for
from tests.factories import KIND, make_project, make_schedule
from tests.support.cases import every_case
from tests.support.people import signed_in

pytestmark = pytest.mark.django_db

LIST, ADD = reverse("admin:jobs_schedule_changelist"), reverse("admin:jobs_schedule_add")
PAYLOAD = {"method": "GET", "url": "http://127.0.0.1:9/", "headers": {"X-Token": "sesame"}}
GIVEN: dict[str, Any] = {
    "project": "acme", "name": "nightly", "cron": "30 2 * * *", "time_zone": "Europe/Berlin", "jitter_seconds": "0",
    "ends_at_0": "", "ends_at_1": "", "missed": "once", "most_missed": "10", "reason": "asked for by sales",
    "jobs": json.dumps([{"kind": KIND, "payload": PAYLOAD}]),
}  # fmt: skip


def page_of(schedule: Schedule, part: str = "change") -> str:
    return reverse(f"admin:jobs_schedule_{part}", args=[schedule.pk])


def test_an_administrator_makes_changes_and_deletes_one_and_each_is_audited():
    make_project("acme")
    person = signed_in("administrator")
    assert person.post(ADD, GIVEN).status_code == 302
    made = Schedule.objects.get()
    page = person.get(page_of(made)).content.decode()
    assert page.count("02:30 CE") == 5
    assert MASK in page
    assert "sesame" not in page
    kept = json.dumps([{"kind": KIND, "payload": {**PAYLOAD, "headers": {"X-Token": MASK}}}])
    assert person.post(page_of(made), {**GIVEN, "cron": "0 4 * * *", "jobs": kept}).status_code == 302
    changed = Schedule.objects.get()
    assert (changed.cron, changed.jobs[0]["payload"]) == ("0 4 * * *", PAYLOAD)
    assert person.post(page_of(made, "delete"), {"post": "yes"}).status_code == 302
    actions = AuditEntry.objects.filter(target=f"schedule {made.pk}").order_by("pk").values_list("action", flat=True)
    assert list(actions) == ["create_schedule", "change_schedule", "delete_schedule"]


def test_a_form_that_was_opened_before_somebody_elses_change_undoes_nothing():
    schedule = make_schedule(cron="30 2 * * *")
    late, quick = signed_in("administrator"), signed_in("administrator")
    seen = [token_in(person.get(page_of(schedule)).content.decode()) for person in (late, quick)]
    jobs = json.dumps(schedule.jobs)
    told = {**GIVEN, "name": schedule.name, "jobs": jobs, "time_zone": schedule.time_zone}
    assert quick.post(page_of(schedule), {**told, "cron": "0 4 * * *", "shown_as": seen[1]}).status_code == 302
    answer = late.post(page_of(schedule), {**told, "name": "renamed", "shown_as": seen[0]}, follow=True)
    assert escape(CHANGED_MEANWHILE) in answer.content.decode()
    schedule.refresh_from_db()
    assert (schedule.name, schedule.cron) == (told["name"], "0 4 * * *")
    told |= {"name": "renamed", "cron": schedule.cron, "shown_as": token_in(answer.content.decode())}
    assert late.post(page_of(schedule), told).status_code == 302
    schedule.refresh_from_db()
    assert schedule.name == "renamed"


def token_in(page: str) -> str:
    [token] = re.findall('name="shown_as" value="([0-9a-f]{64})"', page)
    return str(token)


FAULTS = {
    "cron": ({"cron": "0 0 30 2 *"}, "there is no such day"),
    "zone": ({"time_zone": "Berlin"}, "There is no such time zone"),
    "jobs": ({"jobs": json.dumps([{"kind": KIND, "payload": {}}])}, "0.payload.method"),
    "json": ({"jobs": "["}, "Not JSON"),
    "name": ({"name": "taken"}, "already exists"),
}


@every_case("case", FAULTS, undone=True)
def test_the_form_says_what_is_wrong_and_keeps_what_was_typed(case):
    figures, wanted = FAULTS[case]
    make_schedule("taken")
    answer = signed_in("administrator").post(ADD, {**GIVEN, **figures})
    assert answer.status_code == 200
    assert wanted in answer.content.decode()
    assert "Europe/Berlin" in answer.content.decode() or case == "zone"
    assert Schedule.objects.count() == 1


def test_an_operator_steers_and_changes_nothing():
    schedule, operator = make_schedule(), signed_in("operator")
    for verb, action in (("run", "Run now"), ("pause", "Pause")):
        assert action in operator.get(page_of(schedule)).content.decode()
        address = f"{LIST}{schedule.pk}/{verb}/"
        assert operator.get(address).status_code == 200  # asks
        assert operator.post(address, {"confirmed": "1", "reason": "x"}).status_code == 302
    assert (Job.objects.count(), Schedule.objects.get().paused) == (1, True)
    assert "Resume" in operator.get(page_of(schedule)).content.decode()
    assert operator.post(page_of(schedule), GIVEN).status_code == 403
    assert operator.get(ADD).status_code == 403


def test_a_viewer_sees_what_came_of_it_and_no_secret():
    schedule = make_schedule(jobs=[{"kind": KIND, "payload": PAYLOAD}])
    Project.objects.update(max_waiting_jobs=0)
    fire_schedules(at=schedule.next_due_at)
    viewer = signed_in("viewer")
    page = viewer.get(page_of(schedule)).content.decode()
    assert "queue_full" in page
    assert "sesame" not in page
    assert escape(MASK) in page
    assert "refused" in viewer.get(LIST).content.decode()
    for verb in ("run", "pause", "resume"):
        assert viewer.post(f"{LIST}{schedule.pk}/{verb}/", {"confirmed": "1"}).status_code == 403


def test_pages_show_a_schedule_whose_time_zone_is_not_known_here_and_say_so():
    schedule = make_schedule()
    Schedule.objects.update(time_zone="Mars/Olympus")
    for address in (LIST, page_of(schedule)):
        page = signed_in("administrator").get(address)
        assert page.status_code == 200, address
        assert "unknown time zone" in page.content.decode(), address
    assert "This host does not know the time zone Mars/Olympus" in page.content.decode()
    listed = Api(key_for("acme")).get("/schedules/")
    assert [row["next_due"] for row in listed.json()["results"]] == [[]]


@every_case("role", ["viewer", "operator"], undone=True)
def test_pages_show_a_schedule_whose_jobs_are_encrypted_to_whoever_may_not_read_them(role: str):
    make_project("acme")
    Project.objects.update(encrypted=True)
    forget_encrypted()
    schedule = make_schedule()
    for address in (LIST, page_of(schedule)):
        page = signed_in(role).get(address)
        assert page.status_code == 200, address
        assert ("(encrypted; you may not read it)" in page.content.decode()) is (role == "viewer"), address
