"""How a real web process stops while a request is under way, others idle, and a socket is open."""

from __future__ import annotations

import http.client
import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from urllib.parse import urlsplit

import psycopg
import pytest
from django.db import connection

from jobs.models import Job
from tests.dashboards.live.conftest import web_process
from tests.support.live import live_client
from tests.support.processes import database_url, wait_for

pytestmark = pytest.mark.proves("P11")

JOB = {"kind": "http.request", "payload": {"method": "GET", "url": "http://127.0.0.1:9/"}}


def submit(address: str, key: str) -> http.client.HTTPResponse:
    speaking = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)
    speaking.request("POST", "/api/v1/jobs/", json.dumps(JOB), {"X-API-Key": key, "Content-Type": "application/json"})
    response = speaking.getresponse()
    response.read()
    return response


@contextmanager
def submission_held_up() -> Iterator[psycopg.Connection]:
    """Keep whatever submits a job waiting in the database until the block's connection rolls back."""
    with psycopg.connect(database_url()) as holding:
        holding.execute("LOCK TABLE jobs_job IN SHARE MODE")
        yield holding


def is_held_up() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return bool(cursor.fetchone()[0])


def is_refused(address: str) -> bool:
    try:
        http.client.HTTPConnection(urlsplit(address).netloc, timeout=5).connect()
    except ConnectionRefusedError:
        return True
    return False


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_request_under_way_ends_new_ones_are_refused_and_sockets_are_told(signum, key: str):
    with web_process() as (address, process), live_client(address) as live, ThreadPoolExecutor(1) as threads:
        socket = live.watch("me", key=key)
        socket.first("snapshot")
        idle = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)
        idle.request("GET", "/healthz")
        idle.getresponse().read()
        with submission_held_up() as holding:
            answer = threads.submit(submit, address, key)
            wait_for(is_held_up, what="the request under way")
            process.send(signum)
            wait_for(lambda: is_refused(address), what="the refusal of a new connection")
            assert socket.closed() == 1001
            assert idle.sock.recv(1) == b"", "an idle connection was left open"
            assert process.runs
            assert not answer.done()
            holding.rollback()
            response = answer.result(60)
        assert response.status == 201
        assert response.getheader("Connection") == "close"
        assert process.process.wait(120) == 0
        assert "Traceback" not in process.output
    assert Job.objects.count() == 1


def test_a_request_that_does_not_end_is_cut_off_after_the_grace_period(key: str):
    with web_process(QUEUEOPS_DRAIN_GRACE_SECONDS="0.3") as (address, process), ThreadPoolExecutor(1) as threads:
        with submission_held_up():
            answer = threads.submit(submit, address, key)
            wait_for(is_held_up, what="the request under way")
            assert process.stop() == 0
            assert "1 requests are cut off after 0.3 s" in process.output
            assert "Traceback" not in process.output
        with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
            answer.result(60)
    assert not Job.objects.exists()
