"""Maintenance windows over the API, and in the admin."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.urls import reverse
from django.utils import timezone

from jobs.features.windows import windows
from jobs.models import MaintenanceWindow, PauseSwitch
from queueops.audit.models import AuditEntry
from tests.api.conftest import Api, error_of
from tests.factories import FAR_WEEKDAY, make_project
from tests.support.people import signed_in

pytestmark = pytest.mark.django_db

WEEKLY: dict[str, object] = {
    "weekdays": [FAR_WEEKDAY],
    "since": "22:00",
    "until": "02:00",
    "time_zone": "Europe/Berlin",
    "reason": "theirs",
}


def once(scope: str, key: str) -> MaintenanceWindow:
    now = timezone.now()
    figures = {"scope": scope, "key": key, "begins_at": now, "ends_at": now + timedelta(hours=1)}
    return windows.save_window(None, figures, actor="user:1")


def test_a_key_makes_sees_ends_and_deletes_windows_of_its_project(api: Api) -> None:
    make_project("other")
    others, everybodys = once("project", "other"), once("service", "http")
    response = api.post("/maintenance/", WEEKLY)
    assert response.status_code == 201, response.content
    made = response.json()
    assert (made["scope"], made["weekdays"], made["is_open"], len(made["next_times"])) == (
        "project",
        [FAR_WEEKDAY],
        False,
        5,
    )
    assert [one["id"] for one in api.get("/maintenance/").json()["results"]] == [made["id"], str(everybodys.pk)]
    assert api.get(f"/maintenance/{made['id']}/").json() == made
    assert api.get(f"/maintenance/{others.pk}/").status_code == 404
    for foreign in (others, everybodys):
        assert api.client.delete(f"/api/v1/maintenance/{foreign.pk}/").status_code == 404
        assert api.post(f"/maintenance/{foreign.pk}/end/", {}).status_code == 404
    now = timezone.now()
    given = {"begins_at": now.isoformat(), "ends_at": (now + timedelta(hours=1)).isoformat()}
    opened = api.post("/maintenance/", given).json()
    windows.tend_windows()
    assert api.get(f"/maintenance/{opened['id']}/").json()["is_open"]
    assert api.get("/project/").json()["paused"]
    ended = api.post(f"/maintenance/{opened['id']}/end/", {"reason": "done"})
    assert (ended.status_code, ended.json()["is_open"]) == (200, False)
    assert not api.get("/project/").json()["paused"]
    assert api.client.delete(f"/api/v1/maintenance/{made['id']}/").json() == {"deleted": True}
    assert MaintenanceWindow.objects.filter(pk=made["id"]).count() == 0


def change(api: Api, pk: object, **changes: object) -> Any:
    return api.send("PATCH", f"/maintenance/{pk}/", json.dumps(changes))


def test_a_key_changes_its_windows_and_what_is_left_out_stays(api: Api) -> None:
    window = once("project", "acme")
    windows.tend_windows()
    later = (timezone.now() + timedelta(hours=3)).isoformat()
    changed = change(api, window.pk, ends_at=later)
    assert changed.status_code == 200, changed.content
    assert (changed.json()["reason"], changed.json()["is_open"]) == (window.reason, True)
    windows.tend_windows()
    assert PauseSwitch.objects.get().until == datetime.fromisoformat(later)
    assert change(api, window.pk, begins_at=later, ends_at="2099-01-01T00:00:00Z").status_code == 422  # 31 days
    end = (timezone.now() + timedelta(hours=4)).isoformat()
    assert change(api, window.pk, begins_at=later, ends_at=end).json()["next_times"] != []
    windows.tend_windows()
    assert not PauseSwitch.objects.exists()  # it is to come again
    weekly = change(api, window.pk, begins_at=None, ends_at=None, **WEEKLY).json()
    assert (weekly["weekdays"], weekly["begins_at"], len(weekly["next_times"])) == ([FAR_WEEKDAY], None, 5)
    entry = AuditEntry.objects.filter(action="change_window", project_id="acme").latest("pk")
    assert entry.before is not None
    assert entry.after is not None
    assert (entry.before["begins_at"] is None, entry.after["weekdays"]) == (False, [FAR_WEEKDAY])


def test_one_that_was_ended_by_hand_stays_ended_where_its_times_stay(api: Api) -> None:
    window = once("project", "acme")
    windows.tend_windows()
    api.post(f"/maintenance/{window.pk}/end/", {})
    assert change(api, window.pk, reason="over already").json()["next_times"] == []
    windows.tend_windows()
    assert not PauseSwitch.objects.exists()
    change(api, window.pk, ends_at=(timezone.now() + timedelta(hours=2)).isoformat())
    windows.tend_windows()
    assert PauseSwitch.objects.exists()


def test_a_change_that_makes_no_sense_changes_nothing(api: Api) -> None:
    make_project("other")
    window, others, everybodys = once("project", "acme"), once("project", "other"), once("service", "http")
    before = list(MaintenanceWindow.objects.order_by("pk").values())
    for given, field in (
        ({"ends_at": "2020-01-01T00:00:00Z"}, "ends_at"),
        ({"begins_at": "2020-01-01T00:00:00Z", "ends_at": "2020-01-02T00:00:00Z"}, "ends_at"),
        ({"ends_at": None}, "ends_at"),
        ({"weekdays": [1]}, "weekdays"),
        ({"begins_at": None, "ends_at": None, **WEEKLY, "time_zone": "Mars"}, "time_zone"),
        ({"time_zone": "Mars"}, "time_zone"),  # of one that is once, too
        ({"begins_at": None, "ends_at": None, **WEEKLY, "since": "22:00:00+02:00"}, "since"),
        ({"begins_at": None, "ends_at": None, **WEEKLY, "until": "22:00:30"}, "until"),
    ):
        error = error_of(change(api, window.pk, **given), 422)
        assert (error["code"], list(error["fields"])) == ("bad_window", [field])
    shapes: list[dict[str, Any]] = [
        {"scope": "global"},
        {"key": "other"},
        {"ends_at": "soon"},
        {"ends_at": "2099-01-01T00:00:00"},
        {"weekdays": None},
        {"weekdays": [9]},
        {"since": "25:00"},
        {"reason": "x" * 501},
        {"id": str(others.pk)},
        {"time_zone": 1},
    ]
    for shape in shapes:
        error = error_of(change(api, window.pk, **shape), 422)
        assert error["code"] == "invalid_input"
        assert [path.partition(".")[0] for path in error["fields"]] == [*shape]
    for foreign in (others.pk, everybodys.pk, UUID(int=1)):
        assert error_of(change(api, foreign, reason="x"), 404)["code"] == "not_found"
    assert list(MaintenanceWindow.objects.order_by("pk").values()) == before


def test_faults_are_told_by_their_field(api: Api) -> None:
    error = error_of(api.post("/maintenance/", {**WEEKLY, "time_zone": "Mars"}), 422)
    assert (error["code"], list(error["fields"])) == ("bad_window", ["time_zone"])
    assert error_of(api.post("/maintenance/", {**WEEKLY, "scope": "global"}), 422)["code"]
    assert not MaintenanceWindow.objects.exists()


def test_an_administrator_makes_one_sees_its_times_ends_and_deletes_it() -> None:
    make_project("acme")
    browser = signed_in("administrator")
    add = reverse("admin:jobs_maintenancewindow_add")
    empty = browser.post(add, {"scope": "project", "key": "nobody", "time_zone": "UTC"})
    assert "There is no such project." in empty.content.decode()
    given = {"scope": "kind", "key": "http.request", "weekdays": ["0", "1", "2", "3", "4", "5", "6"]}
    given |= {"since": "00:00", "until": "00:00", "time_zone": "Europe/Berlin", "reason": "theirs"}
    assert browser.post(add, given).status_code == 302
    window = MaintenanceWindow.objects.get()
    windows.tend_windows()
    assert PauseSwitch.objects.get().window_id == window.pk
    page = browser.get(reverse("admin:jobs_maintenancewindow_change", args=[window.pk])).content.decode()
    assert "Next times" in page
    assert "End now" in page
    assert "maintenance window" in browser.get(reverse("admin:jobs_pauseswitch_changelist")).content.decode()
    assert "http.request" in browser.get(reverse("admin:jobs_maintenancewindow_changelist")).content.decode()
    ended = browser.post(
        reverse("admin:jobs_maintenancewindow_end", args=[window.pk]), {"confirmed": "1", "reason": ""}
    )
    assert ended.status_code == 302
    assert not PauseSwitch.objects.exists()
    delete = reverse("admin:jobs_maintenancewindow_delete", args=[window.pk])
    assert browser.post(delete, {"post": "yes"}).status_code == 302
    assert not MaintenanceWindow.objects.exists()
