"""R16: PostgreSQL is stopped without a farewell while sockets are open."""

from __future__ import annotations

import psycopg
import pytest

from queueops.core.embedded.cluster import EmbeddedServer
from queueops.tenancy.models import ProducerKey
from tests.dashboards.live.conftest import web_process
from tests.factories import make_job, make_project
from tests.support.event_log import log_event, writer
from tests.support.live import live_client
from tests.support.own_server import bring_back


@pytest.mark.proves("R16")
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
            bring_back(server)
            with writer() as one:
                ids.add(log_event(one, job))
            watcher.wait_for_events(ids)
        came_back = client.watch(f"jobs/{job.pk}", key=key)
        assert came_back.first("snapshot")["data"]["state"] == "queued"
        assert watcher.close_code is None
        assert web.runs
