"""What an executor leaves for the sums and in the log, with real calls to a real server."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from jobs.features.flow import flow
from jobs.handlers import registry
from jobs.handlers.http.payload import outbound_policy
from jobs.handlers.registry import RunningJob, handler
from jobs.models import Job
from jobs.services.submit.spec import JobSpec
from jobs.services.submit.submit import submit_job
from jobs.states import TERMINAL
from queueops.core.outbound.client import CallNotes, OutboundClient, OutboundFailed, call_notes
from queueops.core.outbound.policy import OutboundRefused
from queueops.core.telemetry.logs import JsonFormatter
from tests.factories import make_project
from tests.support.executing import executing
from tests.support.flow import count_all
from tests.support.processes import wait_for

pytestmark = pytest.mark.django_db(transaction=True)


class Answers(BaseHTTPRequestHandler):
    """The path says what is answered: /<status>/<bytes>."""

    def do_GET(self) -> None:
        status, size = map(int, self.path.strip("/").split("/"))
        self.send_response(status)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        self.wfile.write(b"x" * size)

    def log_message(self, *arguments: object) -> None: ...


@pytest.fixture
def provider() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        serving.join()


def carry_out(*specs: JobSpec) -> None:
    make_project()
    with executing():
        ids = [submit_job(spec, project_id="acme", actor="key:test").id for spec in specs]
        ended = Job.objects.filter(pk__in=ids, status__in=TERMINAL)
        wait_for(lambda: ended.count() == len(ids), seconds=60, what="the jobs' ends")


def test_each_call_of_a_handler_is_counted_with_its_answer_and_size(provider: str):
    count_all()
    urls = [f"{provider}/200/5000", f"{provider}/404/10", f"{provider}/204/0"]
    carry_out(*(JobSpec(kind="http.request", payload={"method": "GET", "url": url}) for url in urls))
    count_all()
    [total] = [point for name, point in flow.totals().services.items() if name.startswith("http:")]
    assert {name: count for name, count in total.answers.items() if count} == {"2xx": 2, "404": 1}
    assert total.size_bytes == 5010
    assert (total.completed, total.failed) == (2, 1)
    assert sum(total.latencies) == 3
    assert sum(total.delays) == 3


def test_a_call_that_nobody_answers_is_noted_and_one_that_is_refused_is_not():
    notes = CallNotes()

    async def call(url: str) -> None:
        client = OutboundClient()
        call_notes.set(notes)
        try:
            await client.send("GET", url, policy=outbound_policy(), timeout_seconds=5, max_response_bytes=10)
        finally:
            await client.close()

    with pytest.raises(OutboundRefused):
        asyncio.run(call("http://169.254.169.254/"))
    with pytest.raises(OutboundFailed):
        asyncio.run(call("http://127.0.0.1:9/"))
    assert notes.answers == [(0, 0)]


@pytest.mark.parametrize("is_async", [True, False])
def test_what_a_handler_logs_names_its_job_and_executor(is_async, monkeypatch):
    monkeypatch.setattr(registry, "_handlers", dict(registry._handlers))
    logger = logging.getLogger("tests.handlers")
    if is_async:

        @handler(kind="test.says", service="test", payload=dict)
        async def say(job: RunningJob[dict[str, str]]) -> None:
            logger.warning("the sheet is locked")

    else:

        @handler(kind="test.says", service="test", payload=dict)
        def say_in_a_thread(job: RunningJob[dict[str, str]]) -> None:
            logger.warning("the sheet is locked")

    lines: list[dict[str, str]] = []

    class Keeping(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(json.loads(JsonFormatter().format(record)))

    keeping = Keeping()
    logger.addHandler(keeping)
    try:
        carry_out(JobSpec(kind="test.says", payload={}))
    finally:
        logger.removeHandler(keeping)
    job = Job.objects.get()
    [line] = lines
    assert (line["job"], line["kind"], line["project"]) == (str(job.pk), "test.says", "acme")
    assert line["executor"] == str(job.executor)
