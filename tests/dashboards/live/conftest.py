"""A real web process with real sockets, on the test's database."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.db import connection

from queueops.tenancy.models import ProducerKey
from tests.factories import make_project
from tests.support.live import LiveClient, live_client
from tests.support.processes import RunningProcess, free_port, manage, wait_for


@contextmanager
def web_process(**environ: str) -> Iterator[tuple[str, RunningProcess]]:
    """Its address, once it answers, and the process."""
    port = int(environ.get("QUEUEOPS_PORT") or free_port())
    address = f"http://127.0.0.1:{port}"
    with manage("web", environ={"QUEUEOPS_PORT": str(port), **environ}) as process:

        def answers() -> bool:
            assert process.runs, process.output
            try:
                with urllib.request.urlopen(f"{address}/api/v1/jobs/", timeout=5):  # noqa: S310 - our own address
                    return True
            except urllib.error.HTTPError:
                return True
            except OSError:
                return False

        wait_for(answers, seconds=60, what="the web process")
        yield address, process


@pytest.fixture(scope="module")  # not longer: who has failed to sign in too often from an address is let wait
def web(django_db_setup: None) -> Iterator[tuple[str, RunningProcess]]:
    """For all tests of a module: what it remembers of one must not matter to the next."""
    with web_process() as running:
        yield running


@pytest.fixture
def client(web: tuple[str, RunningProcess], transactional_db: None) -> Iterator[LiveClient]:
    with live_client(web[0]) as clients:
        yield clients
    assert web[1].runs, web[1].output


@pytest.fixture
def key(transactional_db: None) -> str:
    """Of the project acme."""
    return ProducerKey.issue(make_project("acme"), name="producer")[1]


@pytest.fixture(autouse=True)
def empty_log(transactional_db: None) -> None:
    """Nothing but migrations makes the log, so flushing models does not empty it."""
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE jobs_jobevent")
