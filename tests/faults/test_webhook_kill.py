"""Ended jobs for webhooks, while whoever sends their messages is killed."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from django.db.models import Count

from jobs.models import Job, Webhook, WebhookDelivery, WebhookJob
from tests.factories import make_jobs, make_project, make_webhook, move_along
from tests.faults.clusters import cluster, kill
from tests.support.flow import count_all
from tests.support.processes import wait_for

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


def all_are_told(hooks: list[Webhook]) -> bool:
    rows = WebhookJob.objects.filter(webhook__in=hooks)
    if rows.count() < JOBS * len(hooks) or rows.filter(delivery_id=None).exists():
        return False
    # Asked once all messages are made: one that was made after the question would not have been sent.
    return not WebhookDelivery.objects.exclude(job__status="completed").exists()


@pytest.mark.proves("P13")
def test_each_ended_job_is_told_under_one_id_though_whoever_sends_its_message_is_killed(ledger, hooks, receiver):
    """Whoever notes jobs and makes messages dies before and after each statement in tests/crash_points."""
    jobs = end_some()
    receiver.answers.clear()
    with cluster(ledger, executors=1, allow_loopback_targets=True) as running:
        wait_for(lambda: receiver.messages, seconds=60, what="a message that arrived")
        for executor in running.executors():
            kill(executor)
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
    assert len(receiver.messages) > len(told), "what was under way was sent once more, under its id"
