"""R16: PostgreSQL is stopped without a farewell while sockets are open."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, connection

from queueops.core.embedded import EmbeddedServer
from queueops.tenancy.models import ProducerKey
from tests.dashboards.live.conftest import web_process
from tests.factories import make_job, make_project
from tests.faults.own_server import own_server
from tests.support.event_log import log_event, writer
from tests.support.live import live_client
from tests.support.processes import wait_for

pytestmark = pytest.mark.faults


@pytest.fixture
def server(django_db_blocker: Any) -> Iterator[EmbeddedServer]:
    with django_db_blocker.unblock(), own_server() as running:
        yield running


def _answers() -> bool:
    connection.close()
    try:
        connection.ensure_connection()
    except OperationalError:
        return False
    return True


@pytest.mark.parametrize("restarts", [pytest.param(2, id="short"), pytest.param(5, id="long", marks=pytest.mark.soak)])
def test_sockets_outlive_the_databases_restart_and_miss_nothing(restarts: int, server: EmbeddedServer):
    _, key = ProducerKey.issue(make_project("acme"), name="producer")
    job = make_job()
    with web_process() as (address, web), live_client(address) as client:
        watcher = client.watch(f"jobs/{job.pk}", key=key)
        watcher.first("snapshot")
        ids: set[int] = set()
        for _ in range(restarts):
            with writer() as one:
                for _ in range(50):
                    ids.add(log_event(one, job))
                    one.commit()
            try:
                with writer() as lost:
                    log_event(lost, job)
                    server.stop("immediate")
            except psycopg.OperationalError:
                pass  # the commit of what was lost
            server.ensure_running()
            wait_for(_answers, what="the server's return")
            with writer() as one:
                ids.add(log_event(one, job))
            watcher.wait_for_events(ids, seconds=30)
        came_back = client.watch(f"jobs/{job.pk}", key=key)
        assert came_back.first("snapshot", seconds=20)["data"]["state"] == "queued"
        assert watcher.close_code is None
        assert web.runs
