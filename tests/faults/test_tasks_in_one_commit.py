"""Tasks whose effect and completion are one commit: whenever their process is killed, the effect is there once."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from jobs.django_tasks import QueueOpsBackend
from jobs.handlers.registry import RunningJob
from jobs.models import Batch, DeadLetter, Job, JobEvent, RetryPolicy
from jobs.services.operate.job_actions import cancel_jobs
from jobs.states import JobState
from jobs.task_framework import InvalidTaskError
from jobs.testing import drain
from tests.support.processes import manage, wait_for
from tests.support.sample_app import tasks

pytestmark = pytest.mark.django_db(transaction=True)


def effects(name: str) -> int:
    return Batch.objects.filter(name=name).count()


@pytest.mark.parametrize(
    "place", ["completed", *(pytest.param(one, marks=pytest.mark.soak) for one in ("begun", "written", "committed"))]
)
def test_the_effect_is_there_once_wherever_its_process_is_killed(place, tmp_path: Path):
    result = tasks.book.enqueue("once")
    environ = {
        "DIES_AT": place,
        "DIES_ONCE": str(tmp_path / "died"),
        "QUEUEOPS_EXTRA_APPS": "tests.support.sample_app",
        "QUEUEOPS_WORKERS": "1",
        "QUEUEOPS_LEASE_SECONDS": "3",
        "QUEUEOPS_RENEW_SECONDS": "0.9",
        "QUEUEOPS_SWEEP_SECONDS": "0.5",
    }
    with manage("qcluster", environ=environ):
        wait_for((tmp_path / "died").exists, what="its death", seconds=120)
        wait_for(lambda: Job.objects.get().status == JobState.COMPLETED, what="its end", seconds=120)
    assert effects("once") == 1
    result.refresh()
    assert result.return_value == "once"
    assert result.attempts == (1 if place == "committed" else 2)
    assert JobEvent.objects.filter(to_status=JobState.COMPLETED).count() == 1


def test_its_end_is_recorded_as_any_other():
    result = tasks.book.enqueue("plain")
    drain()
    result.refresh()
    assert result.return_value == "plain"
    assert effects("plain") == 1
    [event] = JobEvent.objects.filter(to_status=JobState.COMPLETED)
    assert (event.data or {})["duration_ms"] > 0
    known = {"state_change", "progress"}
    assert not JobEvent.objects.exclude(event_type__in=known).exists()  # no write was refused


def test_what_fails_leaves_nothing_behind_and_is_tried_again():
    RetryPolicy.objects.create(name="quick", initial_seconds=0.1, multiplier=1, max_delay_seconds=1, max_retries=2)
    result = tasks.book.enqueue("bad")
    Job.objects.update(retry_policy="quick")
    drain()
    assert effects("bad") == 0
    assert DeadLetter.objects.get().error_message == "LookupError: bad"
    result.refresh()
    assert result.attempts == 3


def test_a_task_that_is_cancelled_as_it_runs_leaves_nothing_behind(monkeypatch):
    begun, let_go = threading.Event(), threading.Event()
    completes = RunningJob.complete

    def waits(self: RunningJob[Any], result: Any = None) -> None:
        begun.set()
        let_go.wait(60)
        completes(self, result)

    monkeypatch.setattr(RunningJob, "complete", waits)
    tasks.book.enqueue("cancelled")

    def cancel() -> None:
        assert begun.wait(60)
        cancel_jobs([Job.objects.get().pk], actor="user:1", reason="not wanted")
        let_go.set()
        connection.close()

    by_hand = threading.Thread(target=cancel)
    by_hand.start()
    drain()
    by_hand.join()
    assert effects("cancelled") == 0
    assert Job.objects.get().status == JobState.CANCELLED


def test_what_happens_after_the_commit_does_not_undo_it(monkeypatch):
    monkeypatch.setattr("jobs.handlers.django_task.task_finished.send", _raises)
    tasks.book.enqueue("told")
    drain()
    assert effects("told") == 1
    assert Job.objects.get().status == JobState.COMPLETED


def _raises(*given: object, **named: object) -> None:
    raise RuntimeError("a receiver's fault")


def test_an_async_task_is_refused_and_others_apps_tasks_are_named_in_the_options():
    with pytest.raises(InvalidTaskError, match="one commit needs a synchronous task"):
        replace(tasks.shout, in_one_commit=True)

    named = QueueOpsBackend("default", {"OPTIONS": {"project": "tasks", "in_one_commit": [tasks.add.module_path]}})
    assert named.is_in_one_commit(tasks.add)
    assert named.is_repeatable(tasks.add)
    assert not named.is_in_one_commit(tasks.fail)
    wrong = QueueOpsBackend("default", {"OPTIONS": {"project": "tasks", "in_one_commit": "a.b"}})
    assert [message.id for message in wrong.check()] == ["jobs.E003"]
