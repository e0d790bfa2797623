"""What may not run fails with its name, and ends no worker: a duty of a later version, or anything else queued."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import pytest
from django.db.models.functions import Now
from django_q.models import Task
from django_q.signals import pre_execute

from jobs import cluster
from queueops.site.diagnosis.finding import DoctorVerdict
from queueops.site.diagnosis.upkeep import examine_tasks


def begin(func: Any, **task: Any) -> dict[str, Any]:
    """As a worker begins a task, before it unpacks the arguments that it then calls the function with."""
    given = {"name": "a-task", "func": "x", "args": (), "kwargs": {}, **task}
    pre_execute.send(sender="django_q", func=func, task=given)
    return given


def test_a_function_that_is_not_on_the_list_is_not_called_and_is_named(caplog: pytest.LogCaptureFixture):
    called: list[object] = []

    def later_duty(*given: object) -> None:
        called.append(given)

    task = pickle.loads(pickle.dumps(begin(later_duty, args=(1, 2))))  # noqa: S301 - as it goes to another process
    with pytest.raises(cluster.TaskNotAllowed, match="later_duty is not on the list"):
        later_duty(*task["args"], **task["kwargs"])
    assert called == []
    assert "later_duty is not on the list of what may run; it is refused" in caplog.text


def test_what_is_on_the_list_keeps_its_arguments_and_what_is_not_there_is_left_to_the_library():
    assert begin(cluster.settle_holds, args=(1,))["args"] == (1,)
    assert begin(None, args=(1,))["args"] == (1,)


@pytest.mark.django_db
def test_the_doctor_names_what_workers_refused_lately():
    def fail(func: str, *, success: bool = False, minutes: float = 0) -> None:
        at = Now() - timedelta(minutes=minutes)
        Task.objects.create(
            id=f"{func}{success}{minutes}", name="n", func=func, success=success, started=at, stopped=at
        )

    fail("jobs.cluster.settle_holds")
    fail("jobs.cluster.long_ago", minutes=61)
    fail("jobs.cluster.well", success=True)
    assert examine_tasks().verdict is DoctorVerdict.OK
    fail("jobs.cluster.later_duty")
    fail("jobs.cluster.later_duty", minutes=1)
    found = examine_tasks()
    assert found.verdict is DoctorVerdict.WARN
    assert "refused jobs.cluster.later_duty in the last hour" in found.observation
    assert "finish the upgrade" in found.advice
    for number in range(6):
        fail(f"jobs.cluster.a_{number}")
    assert "a_4 and others" in examine_tasks().observation
