"""R12, the queue's half: a commit arrives, and who waits for its answer never hears of it."""

import os
import signal

import pytest
from django.db import transaction

from jobs.models import Job
from jobs.services.submit.spec import JobSpec
from jobs.services.submit.submit import SubmittedJob, submit_job
from jobs.states import JobState
from tests.factories import make_project
from tests.faults.clusters import cluster
from tests.faults.forks import killed
from tests.faults.ledger import Ledger
from tests.faults.records import PROJECT, crashes, refused_writes, statuses, submit_work, wait_until_drained
from tests.support.processes import wait_for
from tests.support.racing import run_together

pytestmark = [pytest.mark.usefixtures("transactional_db"), pytest.mark.proves("R12")]


def _spec(key: str) -> JobSpec:
    return JobSpec(kind="faults.write_once", idempotency_key=key)


def test_a_producer_killed_between_commit_and_answer_finds_its_one_job_when_it_asks_again():
    make_project(PROJECT)

    def submit_and_die() -> None:
        with transaction.atomic():
            transaction.on_commit(lambda: os.kill(os.getpid(), signal.SIGKILL))
            submit_job(_spec("one"), project_id=PROJECT, actor="key:test")

    killed(submit_and_die)
    again = submit_job(_spec("one"), project_id=PROJECT, actor="key:test")
    assert not again.created
    assert Job.objects.get().pk == again.id


def test_fifty_producers_with_one_key_at_once_have_one_effect():
    make_project(PROJECT)

    def produce(_: int) -> SubmittedJob:
        return submit_job(_spec("the same"), project_id=PROJECT, actor="key:test")

    answers = run_together(50, produce)
    assert [answer.created for answer in answers].count(True) == 1
    assert {answer.id for answer in answers} == {Job.objects.get().pk}


def test_an_executor_cut_off_between_commit_and_answer_repeats_and_loses_nothing(ledger: Ledger):
    with cluster(ledger, executors=1, faults_lose_answer_of="claim flush") as running:
        [before] = [executor.pid for executor in running.general()]
        submit_work(50, "write_once")
        wait_until_drained()
        # A flush that ends the last job is seen here before its executor finds out about the cut.
        wait_for(lambda: running.output.count("lost the database") == 2, what="both cuts")
        assert ledger.was_asked("lost-claim")
        assert ledger.was_asked("lost-flush")
        submit_work(1, "write_once")  # its executor has written again by then what it could not know was written
        wait_until_drained()
        assert [executor.pid for executor in running.general()] == [before]
        assert "lease lost" not in running.output
    assert statuses() == {JobState.COMPLETED: 51}
    assert set(Job.objects.values_list("retry_count", "crash_count")) == {(0, 0)}
    assert {len(entries) for entries in ledger.by_job().values()} == {1}
    assert refused_writes() == []
    assert crashes() == []
