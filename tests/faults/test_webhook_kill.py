"""Ended jobs for webhooks, while whoever notes them, makes their messages or sends them is killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.db.models import Count

from jobs.models import Job, Webhook, WebhookDelivery, WebhookJob
from tests.factories import make_jobs, make_project, make_webhook, move_along
from tests.faults.clusters import Cluster, cluster
from tests.support.flow import count_all
from tests.support.processes import wait_for
from tests.support.racing import waiting_for

pytestmark = pytest.mark.django_db(transaction=True)

JOBS = 120
OF_A_MESSAGE = 25


class Receiver:
    """Takes messages, and kills nothing by itself: it answers when it is let."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, list[str]]] = []
        self.answers = threading.Event()
        self.answers.set()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                told = [job["job"] for job in body["data"]["jobs"]]
                receiver.messages.append((self.headers["webhook-id"], told))
                receiver.answers.wait(30)
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    thread = threading.Thread(target=made.server.serve_forever, daemon=True)
    thread.start()
    yield made
    made.answers.set()
    made.server.shutdown()
    made.server.server_close()
    thread.join()


@pytest.fixture
def hooks(receiver: Receiver) -> list[Webhook]:
    count_all()
    project = make_project()
    given: dict[str, Any] = {"url": receiver.url, "hears_batches": False, "hears_jobs": True, "most_jobs": OF_A_MESSAGE}
    return [make_webhook(project, **given), make_webhook(project, **given, kinds=["http.request"])]


def end_some() -> list[Job]:
    jobs = make_jobs(JOBS)
    for edge in ("dispatch", "start", "complete"):
        move_along(edge, [job.pk for job in jobs])
    return jobs


def kill_workers(running: Cluster) -> None:
    for executor in running.executors():
        with contextlib.suppress(ProcessLookupError):
            os.kill(executor.pid, signal.SIGKILL)


def all_are_told(hooks: list[Webhook]) -> bool:
    rows = WebhookJob.objects.filter(webhook__in=hooks)
    waits = WebhookDelivery.objects.exclude(job__status="completed").exists()
    return rows.count() == JOBS * len(hooks) and not rows.filter(delivery_id=None).exists() and not waits


# Where the process is killed: at what it waits for, in the middle of its transaction.
BLOCKS = {
    "noting": "LOCK TABLE jobs_webhookjob IN SHARE MODE",  # without a transaction id, which the log's reader waits for
    "making messages": "SELECT FROM jobs_webhookjob WHERE job_id = %(job)s FOR UPDATE",
}


@pytest.mark.proves("P13")
@pytest.mark.parametrize("where", [*BLOCKS, "sending"])
def test_each_ended_job_is_noted_once_and_told_under_one_id_wherever_a_process_is_killed(
    ledger, hooks, receiver, where
):
    variables = {"allow_loopback_targets": True}
    with psycopg.connect(**connection.get_connection_params() | {"cursor_factory": None}) as blocker:
        jobs = end_some()
        if where == "making messages":
            count_all()
            assert WebhookJob.objects.filter(delivery_id=None).count() == JOBS * len(hooks)
        if where in BLOCKS:
            blocker.execute(BLOCKS[where], {"job": jobs[-1].pk} if "%" in BLOCKS[where] else None)
        else:
            receiver.answers.clear()
        with cluster(ledger, executors=1, **variables) as running:
            if where in BLOCKS:
                wait_for(lambda: waiting_for(blocker), seconds=60, what="the duty at the blocked row")
                kill_workers(running)
                blocker.rollback()
            else:
                wait_for(lambda: receiver.messages, seconds=60, what="a message that arrived")
                kill_workers(running)
                receiver.answers.set()
            wait_for(lambda: all_are_told(hooks), seconds=120, what="every message")
    rows = WebhookJob.objects.values("webhook", "job_id").annotate(times=Count("pk"))
    assert set(rows.values_list("times", flat=True)) == {1}
    assert rows.count() == JOBS * len(hooks)
    told: dict[str, list[str]] = {}
    for message, of in receiver.messages:
        assert told.setdefault(message, of) == of, "a repetition tells the same"
    assert Counter(job for of in told.values() for job in of) == {str(job.pk): len(hooks) for job in jobs}
    assert len(told) == len(hooks) * -(-JOBS // OF_A_MESSAGE)
    if where == "sending":
        assert len(receiver.messages) > len(told), "what was under way was sent once more, under its id"
