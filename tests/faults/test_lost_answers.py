"""R12, the queue's half: a commit arrives, and who waits for its answer never hears of it."""

import signal
import sys
import textwrap
import threading

import pytest
from django.db import connection

from jobs.models import Job
from jobs.services.submit.spec import JobSpec
from jobs.services.submit.submit import SubmittedJob, submit_job
from jobs.states import JobState
from tests.factories import make_project
from tests.faults.clusters import cluster
from tests.faults.ledger import Ledger
from tests.faults.records import PROJECT, crashes, refused_writes, statuses, submit_work, wait_until_drained
from tests.support.processes import database_url, started

pytestmark = [pytest.mark.usefixtures("transactional_db"), pytest.mark.proves("R12")]

SUBMIT_AND_DIE = textwrap.dedent(
    """
    import os, signal, sys
    import django
    django.setup()
    from django.db import transaction
    from jobs.services.submit.spec import JobSpec
    from jobs.services.submit.submit import submit_job
    with transaction.atomic():
        transaction.on_commit(lambda: os.kill(os.getpid(), signal.SIGKILL))
        submit_job(JobSpec.model_validate_json(sys.argv[1]), project_id=sys.argv[2], actor="key:test")
    """
)


def _spec(key: str) -> JobSpec:
    return JobSpec(kind="faults.write_once", idempotency_key=key)


def test_a_producer_killed_between_commit_and_answer_finds_its_one_job_when_it_asks_again(ledger: Ledger):
    make_project(PROJECT)
    environ = {
        "DATABASE_URL": database_url(),
        "DJANGO_SETTINGS_MODULE": "queueops.settings",
        "QUEUEOPS_EXTRA_APPS": "tests.faults.app",
        "FAULTS_DIR": str(ledger.directory),
    }
    with cluster(ledger):
        for key in ("one", "two", "three"):
            spec = _spec(key)
            command = (sys.executable, "-c", SUBMIT_AND_DIE, spec.model_dump_json(), PROJECT)
            with started(*command, environ=environ) as producer:
                assert producer.process.wait(120) == -signal.SIGKILL, producer.output
            again = submit_job(spec, project_id=PROJECT, actor="key:test")
            assert not again.created
            assert Job.objects.get(idempotency_key=key).pk == again.id
        wait_until_drained()
    assert statuses() == {JobState.COMPLETED: 3}
    assert {len(entries) for entries in ledger.by_job().values()} == {1}


@pytest.mark.concurrency
def test_fifty_producers_with_one_key_at_once_have_one_effect(ledger: Ledger):
    make_project(PROJECT)
    together = threading.Barrier(50)
    answers: list[SubmittedJob] = []

    def produce() -> None:
        connection.ensure_connection()
        together.wait(30)
        try:
            answers.append(submit_job(_spec("the same"), project_id=PROJECT, actor="key:test"))
        finally:
            connection.close()

    with cluster(ledger):
        threads = [threading.Thread(target=produce) for _ in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wait_until_drained()
    assert len(answers) == 50
    assert [answer.created for answer in answers].count(True) == 1
    assert len({answer.id for answer in answers}) == 1
    assert len(ledger.entries()) == 1


@pytest.mark.parametrize("what", ["claim", "flush"])
def test_an_executor_cut_off_between_commit_and_answer_repeats_and_loses_nothing(what: str, ledger: Ledger):
    with cluster(ledger, executors=1, faults_lose_answer_of=what) as running:
        [before] = [executor.pid for executor in running.general()]
        submit_work(50, "write_once")
        wait_until_drained()
        # A flush that ends the last job is seen here before its executor finds out about the cut.
        running.process.wait_for_output("lost the database")
        assert ledger.was_asked(f"lost-{what}")
        submit_work(1, "write_once")  # its executor has written again by then what it could not know was written
        wait_until_drained()
        assert [executor.pid for executor in running.general()] == [before]
        assert "lease lost" not in running.output
    assert statuses() == {JobState.COMPLETED: 51}
    assert set(Job.objects.values_list("retry_count", "crash_count")) == {(0, 0)}
    assert {len(entries) for entries in ledger.by_job().values()} == {1}
    assert refused_writes() == []
    assert crashes() == []
