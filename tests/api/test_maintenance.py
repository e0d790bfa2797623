"""Maintenance windows over the API, and in the admin."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from jobs.models import MaintenanceWindow, PauseSwitch
from jobs.services.operate import windows
from tests.api.conftest import Api, error_of
from tests.factories import make_project
from tests.support.people import signed_in

pytestmark = pytest.mark.django_db(transaction=True)

WEEKLY: dict[str, object] = {
    "weekdays": [5],
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
    assert (made["scope"], made["weekdays"], made["is_open"], len(made["next_times"])) == ("project", [5], False, 5)
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
