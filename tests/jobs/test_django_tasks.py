"""`@task` functions through the queue: real rows, real executors."""

import sys
from datetime import timedelta
from types import SimpleNamespace
from uuid import uuid4

import pytest
from asgiref.sync import async_to_sync
from django.apps import apps
from django.db import transaction
from django.test import Client, override_settings
from django.utils import timezone

from jobs.django_tasks import KIND, QueueOpsBackend, TaskNotFinished, find_task, priority_of, task
from jobs.models import DeadLetter, Job
from jobs.services.operate.dead_letters import requeue_dead_letters
from jobs.services.operate.job_actions import cancel_jobs
from jobs.services.submit.spec import InvalidJob, JobSpec
from jobs.services.submit.submit import submit_job
from jobs.task_framework import (
    BaseTaskBackend,
    InvalidTaskError,
    TaskResultDoesNotExist,
    TaskResultMismatch,
    TaskResultStatus,
    default_task_backend,
)
from jobs.testing import StillUnfinished, drain
from queueops.tenancy.models import ProducerKey, Project, Scope
from tests.factories import make_project
from tests.support.cases import every_case
from tests.support.processes import manage, wait_for
from tests.support.sample_app import tasks

PATH = "tests.support.sample_app.tasks"

database = pytest.mark.django_db


@database
def test_a_task_runs_and_its_value_comes_back():
    result = tasks.add.enqueue(2, right=3)
    assert (result.status, result.attempts) == (TaskResultStatus.READY, 0)
    assert result.enqueued_at is not None
    drain()
    result.refresh()
    assert (result.status, result.return_value, result.attempts) == (TaskResultStatus.SUCCESSFUL, 5, 1)
    times = [result.enqueued_at, result.started_at, result.last_attempted_at, result.finished_at]
    assert times == sorted(times, key=str)
    assert result.errors == []
    job = Job.objects.get(pk=result.id)
    assert (job.project_id, job.kind, job.service) == ("tasks", KIND, "task:default")


@database
def test_async_tasks_run_with_their_priority_and_queue():
    result = async_to_sync(tasks.shout.aenqueue)("hello", mark="?")
    job = Job.objects.get(pk=result.id)
    assert (job.priority, job.service) == ("urgent", "task:mail")
    counting = tasks.count_projects.enqueue()
    drain()
    shouted = async_to_sync(default_task_backend.aget_result)(result.id)
    assert shouted.return_value == "HELLO?"
    assert default_task_backend.get_result(counting.id).return_value == 1


@database
def test_a_task_waits_for_its_time():
    tomorrow = timezone.now() + timedelta(days=1)
    result = tasks.add.using(run_after=tomorrow).enqueue(1, 1)
    assert Job.objects.get(pk=result.id).scheduled_at == tomorrow
    drain(seconds=5)
    result.refresh()
    assert result.status == TaskResultStatus.READY


@database
def test_a_task_exists_only_if_its_transaction_commits():
    with transaction.atomic():
        result = tasks.add.enqueue(1, 1)
        transaction.set_rollback(True)
    with pytest.raises(TaskResultDoesNotExist):
        tasks.add.get_result(result.id)


@database
def test_a_failed_task_is_not_repeated_and_tells_why():
    result = tasks.fail.enqueue("no such thing")
    drain()
    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.FAILED, 1)
    [error] = result.errors
    assert error.exception_class is LookupError
    assert "raise LookupError(text)" in error.traceback
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value
    letter = DeadLetter.objects.get(job_id=result.id)
    assert (letter.error_code, letter.error_class) == ("task_error", "builtins.LookupError")
    assert letter.error_message == "LookupError: no such thing"


@database
def test_a_task_that_knows_that_another_run_cannot_help_is_not_repeated():
    result = tasks.know_better.enqueue()
    drain()
    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.FAILED, 1)
    assert DeadLetter.objects.get(job_id=result.id).error_code == "closed"


@database
def test_the_traceback_of_a_task_is_the_operators():
    result = tasks.fail.enqueue("no such thing")
    drain()
    key = ProducerKey.issue(Project.objects.get(pk="tasks"), name="own", scopes=list(Scope.values))[1]
    letter = DeadLetter.objects.get(job_id=result.id)
    assert "raise LookupError" in letter.attempts[-1]["traceback"]
    for address in (f"jobs/{result.id}/events", f"dead-letters/{letter.pk}"):
        shown = Client(headers={"Authorization": f"Bearer {key}"}).get(f"/api/v1/{address}/").content.decode()
        assert "task_error" in shown
        assert "raise LookupError" not in shown


@database
def test_a_repeatable_task_is_tried_again_and_knows_its_attempt():
    result = tasks.succeed_at.enqueue(2)
    drain()
    result.refresh()
    assert result.return_value == {"attempt": 2, "id": result.id}
    assert result.attempts == 2
    assert [error.exception_class for error in result.errors] == [LookupError]


@database
def test_a_key_none_is_refused_and_does_not_come_back_as_a_text():
    with pytest.raises(InvalidJob) as refused:
        tasks.add.enqueue(1, right=[{"a": {None: 1}}])
    assert list(refused.value.fields) == ["payload.kwargs.right.0.a"]
    assert tasks.add.enqueue(1, right={"None": 1}).id


@database
def test_what_is_no_json_fails_the_task():
    result = tasks.return_something_else.enqueue()
    drain()
    result.refresh()
    assert [error.exception_class for error in result.errors] == [TypeError]
    with pytest.raises(TypeError):
        tasks.add.enqueue(object(), 1)


@database
def test_a_task_ends_at_its_own_time_limit():
    result = tasks.never_end.enqueue()
    drain()
    result.refresh()
    assert [error.exception_class for error in result.errors] == [TimeoutError]


@database
def test_a_cancelled_task_has_failed():
    result = tasks.add.enqueue(1, 1)
    cancel_jobs([Job.objects.get(pk=result.id).pk], actor="user:1", reason="not wanted")
    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    assert [error.exception_class for error in result.errors] == [TaskNotFinished]


@database
def test_a_requeued_task_is_followed_to_its_latest_job():
    result = tasks.fail.enqueue("again")
    drain()
    letter = DeadLetter.objects.get(job_id=result.id)
    requeue_dead_letters([letter.pk], actor="user:1")
    result.refresh()
    assert result.status == TaskResultStatus.READY
    assert result.errors == []


@database
def test_results_of_others_are_not_found():
    result = tasks.add.enqueue(1, 1)
    with pytest.raises(TaskResultMismatch):
        tasks.fail.get_result(result.id)
    for other in ("nonsense", str(uuid4())):
        with pytest.raises(TaskResultDoesNotExist):
            default_task_backend.get_result(other)


@database
@every_case(
    "path",
    [f"{PATH}.no_task", f"{PATH}.missing", "os.system", "antigravity.fly", "jobs.models.Job", "add", ""],
)
def test_nothing_but_a_task_may_run(path):
    make_project("acme")
    spec = JobSpec(kind=KIND, payload={"task": path})
    with pytest.raises(InvalidJob):
        submit_job(spec, project_id="acme", actor="key:test")
    assert "antigravity" not in sys.modules


def test_a_module_beside_the_tasks_is_not_imported(tmp_path, monkeypatch):
    (tmp_path / "imported_app").mkdir()
    for name in ("__init__", "scripts", "tasks"):
        (tmp_path / f"imported_app/{name}.py").write_text(
            "from jobs.task_framework import task\n@task()\ndef work(): ...\n" if name != "__init__" else ""
        )
    monkeypatch.syspath_prepend(tmp_path)
    # Installing it for real would load the admin and the handlers of all apps again.
    monkeypatch.setattr(apps, "get_app_configs", lambda: [SimpleNamespace(name="imported_app")])
    with pytest.raises(ValueError, match="not a task"):
        find_task("imported_app.scripts.work")
    assert find_task("imported_app.tasks.work").name == "work"


@database
def test_another_project_may_not_run_tasks():
    make_project("acme")
    make_project("tasks")
    spec = JobSpec(kind=KIND, payload={"task": f"{PATH}.add", "args": [1, 2]})
    with pytest.raises(InvalidJob) as refused:
        submit_job(spec, project_id="acme", actor="key:test")
    assert "in the project 'tasks' alone" in refused.value.fields["kind"][0]
    job = submit_job(spec, project_id="tasks", actor="key:test")
    Job.objects.filter(pk=job.id).update(project_id="acme")  # as one that was submitted before the setting changed
    drain()
    assert DeadLetter.objects.get(job_id=job.id).error_code == "project_refused"


@pytest.mark.django_db(transaction=True)
def test_a_queue_that_does_not_empty_is_reported():
    tasks.never_end.enqueue()
    with pytest.raises(StillUnfinished, match=r"django\.task"):
        drain(seconds=0)


@pytest.mark.django_db(transaction=True)
def test_a_real_worker_runs_tasks_of_an_app_of_ones_own():
    result = tasks.add.enqueue(20, 22)
    environ = {"QUEUEOPS_EXTRA_APPS": "tests.support.sample_app", "QUEUEOPS_WORKERS": "2"}
    with manage("qcluster", environ=environ) as cluster:

        def has_ended() -> bool:
            result.refresh()
            return result.is_finished

        wait_for(has_ended, what="the task's end")
        assert result.return_value == 42
        assert cluster.stop() == 0


@every_case(("number", "tier"), [(-100, "low"), (-1, "low"), (0, "normal"), (1, "urgent"), (100, "urgent")])
def test_priorities_become_tiers(number, tier):
    assert priority_of(number) == tier


def test_a_priority_out_of_range_is_refused():
    with pytest.raises(InvalidTaskError):
        tasks.add.using(priority=101)


@every_case(
    ("options", "ids"),
    [
        ({"project": "tasks", "repeatable": ["a.b"]}, []),
        ({}, ["jobs.E001"]),
        ({"project": "No Project"}, ["jobs.E001"]),
        ({"project": "tasks", "colour": 1}, ["jobs.E002"]),
        ({"project": "tasks", "repeatable": "a.b"}, ["jobs.E003"]),
    ],
)
def test_the_options_are_checked(options, ids):
    backend = QueueOpsBackend("default", {"OPTIONS": options})
    assert [message.id for message in backend.check()] == ids


def test_the_keywords_are_the_tasks_own_and_need_no_brackets():
    assert (tasks.succeed_at.repeatable, tasks.succeed_at.takes_context) == (True, True)
    assert tasks.never_end.timeout_seconds == 0.2
    bare = task(tasks.no_task)
    assert (bare.repeatable, bare.retry_policy, bare.timeout_seconds) == (False, None, 300)
    with pytest.raises(TypeError, match="colour"):
        task(colour="red")(tasks.no_task)


def test_a_task_of_another_backend_is_refused():
    dummy = f"{BaseTaskBackend.__module__.removesuffix('.base')}.dummy.DummyBackend"
    with (
        override_settings(TASKS={"default": {"BACKEND": dummy}}),
        pytest.raises(ValueError, match="no QueueOpsBackend"),
    ):
        find_task(f"{PATH}.add")
