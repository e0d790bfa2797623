"""Behind a pooler that shares the server's sessions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import psycopg
import pytest
from django.db import connection

from jobs.models import Job
from jobs.states import JobState
from queueops.core.database import UnsuitableDatabase, database_settings
from queueops.core.pooler import ensure_session_is_ours
from queueops.site.diagnosis.database import examine_listen
from queueops.site.diagnosis.finding import DoctorVerdict
from tests.faults.ledger import Ledger
from tests.faults.records import submit_work
from tests.support.pgbouncer import SESSIONS, needs_pgbouncer, pgbouncer
from tests.support.processes import free_port, manage, wait_for

pytestmark = [needs_pgbouncer, pytest.mark.usefixtures("transactional_db"), pytest.mark.proves("P6")]

PLANNED = "SELECT current_setting('enable_seqscan'), current_setting('jit'), current_setting('plan_cache_mode')"


@contextmanager
def connected_through(url: str) -> Iterator[None]:
    """Have this process's own connection go through the pooler."""
    before = dict(connection.settings_dict)
    connection.close()
    given = database_settings(url)
    connection.settings_dict.update({name: given[name] for name in ("NAME", "USER", "PASSWORD", "HOST", "PORT")})
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict.update(before)


def test_a_session_of_ones_own_is_told_from_a_shared_one():
    ensure_session_is_ours()
    with pgbouncer("session") as url, connected_through(url):
        ensure_session_is_ours()
    with pgbouncer("transaction") as url, connected_through(url):
        with pytest.raises(UnsuitableDatabase, match="QUEUEOPS_LISTEN=off"):
            ensure_session_is_ours()
        assert examine_listen().verdict is DoctorVerdict.FAIL


def test_nothing_starts_with_listen_on_and_jobs_are_done_with_it_off(ledger: Ledger):
    with pgbouncer("transaction") as url:
        environ = {
            "DATABASE_URL": url,
            "QUEUEOPS_PORT": str(free_port()),
            "QUEUEOPS_EXTRA_APPS": "tests.faults.app",
            "QUEUEOPS_WORKERS": "1",
            "FAULTS_DIR": str(ledger.directory),
        }
        for command in ("web", "qcluster"):
            with manage(command, environ=environ) as process:
                assert process.process.wait(120) == 1
                assert "QUEUEOPS_LISTEN=off" in process.output
                assert "Traceback" not in process.output
        before = _planning_of_every_session(url)
        with manage("qcluster", environ={**environ, "QUEUEOPS_LISTEN": "off"}) as process:
            submit_work(20, "write")
            done = Job.objects.filter(status=JobState.COMPLETED)
            wait_for(lambda: done.count() == 20 or not process.runs, seconds=120, what="the jobs")
            assert done.count() == 20, process.output
            assert _planning_of_every_session(url) == before, "a worker's settings reach other clients"


def _planning_of_every_session(url: str) -> set[tuple[str, ...]]:
    """What other clients of the pooler find, on each session that they can be given."""
    with ExitStack() as held:
        found = set()
        for _ in range(SESSIONS - 2):  # the workers use some
            client = held.enter_context(psycopg.connect(url))
            found.add(client.execute(PLANNED).fetchone() or ())
        return found
