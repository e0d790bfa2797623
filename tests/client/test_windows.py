"""Maintenance windows by the clients and by the command, against the real server."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from jobs.features.windows import windows
from jobs.models import MaintenanceWindow
from queueops_client import InvalidRequest, NotFound, QueueOps
from tests.factories import FAR_WEEKDAY, make_project, make_window

pytestmark = pytest.mark.django_db(transaction=True)

WEEKLY: dict[str, Any] = {"weekdays": [FAR_WEEKDAY], "since": "22:00", "until": "02:00", "time_zone": "Europe/Berlin"}


def test_a_window_is_made_listed_changed_ended_and_deleted(queue: QueueOps):
    begins_at = datetime.now(UTC)
    made = queue.create_window(begins_at=begins_at, ends_at=begins_at + timedelta(hours=1), reason="theirs")
    assert (made.scope, made.key, made.is_open, made.next_times[0].begins_at) == ("project", "acme", False, begins_at)
    windows.tend_windows()
    assert queue.window(made).is_open
    assert queue.end_window(made, reason="done").next_times == []
    weekly = queue.change_window(made, begins_at=None, ends_at=None, **WEEKLY)
    assert (weekly.weekdays, weekly.since, weekly.reason, len(weekly.next_times)) == (
        [FAR_WEEKDAY],
        "22:00:00",
        "theirs",
        5,
    )
    assert [one.id for one in queue.windows(scope="project")] == [made.id]
    queue.delete_window(made, reason="not wanted")
    with pytest.raises(NotFound):
        queue.window(made)
    with pytest.raises(NotFound):
        queue.delete_window(made)


def test_what_cannot_be_a_window_is_refused_with_its_field(queue: QueueOps):
    make_project("other")
    with pytest.raises(InvalidRequest) as refused:
        queue.create_window(begins_at="2099-01-02T00:00:00Z", ends_at="2099-01-01T00:00:00Z")
    assert (refused.value.code, list(refused.value.fields)) == ("bad_window", ["ends_at"])
    with pytest.raises(NotFound):
        queue.change_window(make_window("other").pk, reason="x")


def test_the_command_makes_lists_changes_ends_and_deletes(command: Any):
    assert "There are none." in command("windows", "list")[1]
    code, _, said = command("windows", "add", "--on", "someday", "--since", "22:00", "--until", "02:00")
    assert (code, "is no day" in said) == (2, True)
    code, _, said = command("windows", "add", "--on", "sat")
    assert (code, "since" in said) == (1, True)
    given = ("--on", "sat,Sunday", "--since", "22:00", "--until", "02:00", "--time-zone", "Europe/Berlin")
    code, told, _ = command("windows", "add", *given, "--reason", "theirs", "--json")
    made = json.loads(told)
    assert (code, made["weekdays"]) == (0, [5, 6])
    shown = command("windows", "list")[1]
    assert "sat,sun 22:00 to 02:00 Europe/Berlin" in shown
    assert made["id"] in shown
    assert command("windows", "change", made["id"])[0] == 2
    begins_at = datetime.now(UTC)
    times = ("--from", begins_at.isoformat(), "--to", (begins_at + timedelta(hours=1)).isoformat())
    changed = json.loads(command("windows", "change", made["id"], *times, "--json")[1])
    assert (changed["weekdays"], changed["since"], changed["reason"]) == ([], None, "theirs")
    windows.tend_windows()
    assert "open until" in command("windows", "list")[1]
    assert "over" in command("windows", "end", made["id"])[1]
    assert command("windows", "delete", made["id"])[0] == 2  # nobody is there to be asked
    assert command("windows", "delete", made["id"], "--yes")[0] == 0
    assert not MaintenanceWindow.objects.exists()
