"""The TypeScript client in a page of another origin: sockets, and an outbox in IndexedDB that outlives a crash."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from uuid import UUID

import pytest
from playwright.sync_api import Browser, BrowserContext, Error, Page

from jobs.models import Job
from ratelimits.models import UsageEvent, UsageReservation
from tests.api.conftest import ALL_SCOPES, SPEC, key_for
from tests.dashboards.live.conftest import web_process
from tests.factories import make_allowance, move_along
from tests.support.processes import wait_for
from tests.support.typescript import PACKAGE, node

pytestmark = pytest.mark.django_db(transaction=True)

USER = UUID(int=31)
# What a bundler does by the package's conditions.
PAGE = """<!doctype html><meta charset="utf-8"><title>An app</title>
<script type="importmap">
  {"imports": {"queueops-client": "/index.js", "#default-store": "/usage/indexeddb.js"}}
</script>"""
TRACKER = """
async ([address, key, userId]) => {
  const { UsageTracker } = await import("queueops-client");
  window.tracker = new UsageTracker(address, key, { userId, policy: "strict", background: false });
}
"""
WATCH = """
async ([address, key, kind, payload]) => {
  const { QueueOps } = await import("queueops-client");
  const queue = new QueueOps(address, key);
  const job = await queue.submit(kind, payload);
  window.told = [];
  for await (const { kind, subject, isLive } of queue.watch(job)) {
    window.told.push(`${kind} ${subject.state}${isLive ? " live" : ""}`);
  }
}
"""


class Quiet(SimpleHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path != "/":
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(PAGE.encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def origin() -> Iterator[str]:
    """Where the app's page and the built client are served."""
    node()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(PACKAGE / "dist")))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def visitor(chromium: Browser, origin: str) -> Iterator[BrowserContext]:
    context = chromium.new_context(base_url=origin)
    yield context
    context.close()


def opened(visitor: BrowserContext) -> Page:
    page = visitor.new_page()
    page.goto("/")
    return page


def test_a_page_of_another_origin_submits_a_job_and_watches_it_live(visitor: BrowserContext, origin: str):
    key = key_for("acme", scopes=ALL_SCOPES)
    with web_process(QUEUEOPS_CORS_ORIGINS=origin) as (address, _):
        page = opened(visitor)
        page.evaluate(
            f"given => {{ window.watching = ({WATCH})(given); }}", [address, key, SPEC["kind"], SPEC["payload"]]
        )
        page.wait_for_function("window.told?.includes('state queued live')")
        for edge in ("dispatch", "start", "complete"):
            move_along(edge, [Job.objects.get().pk])
        page.evaluate("window.watching")
        assert page.evaluate("window.told.at(-1)") == "state completed live"


def test_what_a_crashed_tab_left_is_found_by_the_next_and_counted_once(visitor: BrowserContext, origin: str):
    make_allowance("acme", unit="tokens", quota=1_000)
    key = key_for("acme", scopes=["usage"])
    with web_process(QUEUEOPS_CORS_ORIGINS=origin) as (address, _):
        first, second = opened(visitor), opened(visitor)
        for page in (first, second):
            page.evaluate(TRACKER, [address, key, str(USER)])
        first.evaluate("tracker.use({ estimate: 100 }, (usage) => { usage.tokens = 30; })")
        cut_off = first.evaluate("tracker.begin({ estimate: 200, service: 'gemini' }).then((usage) => usage.eventId)")
        assert second.evaluate("tracker.report().then(({ intents, inProgress }) => [intents.length, inProgress])") == [
            0,
            1,
        ]
        crash(first)

        def left() -> list[str]:
            found: list[str] = second.evaluate("tracker.report().then((r) => r.intents.map((left) => left.eventId))")
            return found

        assert wait_for(left, what="the end of the tab") == [cut_off]
        assert second.evaluate("id => tracker.resolve(id, { tokens: 144 })", cut_off)
        assert second.evaluate("tracker.flush()") == {"sent": 2, "rejected": 0, "pending": 0}
        assert second.evaluate("tracker.known().then((view) => view.remaining)") == 1_000 - 174
    assert sorted(UsageEvent.objects.values_list("tokens", flat=True)) == [30, 144]
    assert {one.status for one in UsageReservation.objects.all()} == {"confirmed"}


def crash(page: Page) -> None:
    """End the tab's process."""
    with suppress(Error):
        page.goto("chrome://crash")
