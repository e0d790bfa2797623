"""The live dashboard on a real web process, real workers, and a database that is brought down."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from playwright.sync_api import Browser, Page, expect

from jobs.models import Batch, Job, JobEvent
from jobs.states import JobState
from ratelimits.limits import catalogue
from ratelimits.models import Limit
from ratelimits.tuning import limits
from tests.dashboards.live.conftest import web_process
from tests.factories import make_project
from tests.faults.clusters import cluster
from tests.faults.conftest import ledger  # noqa: F401 - a fixture
from tests.faults.ledger import Ledger
from tests.faults.records import PROJECT, submit, submit_work
from tests.support.own_server import own_server
from tests.support.processes import free_port, wait_for

from .conftest import WIDE

LONG_MS = 40_000


@contextmanager
def operator(chromium: Browser, address: str) -> Iterator[Page]:
    """A superuser's page on a process's own address; by a session: it knows no quick password hash."""
    client = Client()
    client.force_login(User.objects.create_superuser("operator"))
    context = chromium.new_context(base_url=address, viewport=WIDE)
    context.add_cookies([{"name": "sessionid", "value": client.cookies["sessionid"].value, "url": address}])
    page = context.new_page()
    page.goto("/")
    yield page
    context.close()


def event_ids(page: Page) -> set[int]:
    """A set that fills with the ids of all events that the page's sockets bring."""
    seen: set[int] = set()

    def read(frame: Any) -> None:
        message = json.loads(frame)
        if message["type"] == "event":
            seen.add(message["event"]["id"])
        elif "data" in message:
            seen.update(event["id"] for event in message["data"]["feed"])

    page.on("websocket", lambda socket: socket.on("framereceived", read))
    return seen


def is_live(page: Page) -> None:
    expect(page.locator("#link")).to_have_attribute("data-state", "live", timeout=LONG_MS)


@pytest.mark.django_db(transaction=True)
def test_a_batch_is_watched_to_its_end_without_a_reload(chromium: Browser, ledger: Ledger):  # noqa: F811
    with cluster(ledger), web_process() as (address, _), operator(chromium, address) as page:
        is_live(page)
        page.evaluate("window.stays = true")
        batch = submit_work(40, "wait", gate="gate")
        row = page.locator("#batches li")
        expect(row).to_contain_text("40 running", timeout=LONG_MS)
        expect(row.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "0")
        expect(page.locator("#feed")).to_contain_text("faults.wait")
        ledger.open_gate("gate")
        expect(row.locator(".state")).to_contain_text("succeeded", timeout=LONG_MS)
        expect(row.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "100")
        expect(page.locator("#verdict")).to_contain_text("Nothing to do", timeout=LONG_MS)
        assert page.evaluate("window.stays")
        assert Batch.objects.get(pk=batch).finished_at is not None


@pytest.mark.django_db(transaction=True)
def test_a_raised_cap_moves_the_queue_before_ones_eyes(chromium: Browser, ledger: Ledger):  # noqa: F811
    make_project(PROJECT)
    catalogue.forget()
    figures = {"name": "faults-cap", "service": "faults", "scope": "project", "capacity": 2}
    limits.create_limit(figures, actor="user:1")
    with cluster(ledger), web_process() as (address, _), operator(chromium, address) as page:
        submit_work(30, "write")
        expect(page.locator("#verdict")).to_contain_text("Held by faults-cap, project faults", timeout=LONG_MS)
        row = page.locator("#limits li").filter(has_text="faults-cap")
        expect(row).to_contain_text("28 jobs wait")
        page.get_by_role("link", name="Tune faults-cap").click()
        page.locator("#id_capacity").fill("300")
        page.get_by_role("button", name="Save", exact=True).click()
        page.locator("#id_confirmed").check()
        page.get_by_role("button", name="Save", exact=True).click()
        page.wait_for_url("**/admin/ratelimits/limit/")
        assert Limit.objects.get().capacity == 300
        page.goto("/")
        expect(page.locator("#batches li .state")).to_contain_text("succeeded", timeout=LONG_MS)
        expect(row).to_contain_text("Nothing waits behind it.")
    catalogue.forget()


@pytest.mark.django_db(transaction=True)
def test_the_page_outlives_its_server_and_its_database_and_misses_nothing(
    chromium: Browser,
    ledger: Ledger,  # noqa: F811
):
    port = str(free_port())
    with own_server() as server, cluster(ledger, executors=1, executor_slots=20):  # noqa: SIM117 - it starts first
        with web_process(QUEUEOPS_PORT=port) as (address, web), operator(chromium, address) as page:
            seen = event_ids(page)
            page.reload()
            is_live(page)
            page.evaluate("window.stays = true")
            first = JobEvent.objects.order_by("-id").values_list("id", flat=True).first() or 0
            gates = ("open", "open", "web", "web", "web", "database", "database", "database")
            ledger.open_gate("open")
            submit({"kind": "faults.wait", "payload": {"gate": gate}} for gate in gates)
            row, banner = page.locator("#batches li"), page.locator("#banner")
            expect(row).to_contain_text("2 completed", timeout=LONG_MS)

            os.kill(web.pid, signal.SIGKILL)
            expect(banner).to_contain_text(re.compile(r"No connection since \d\d:\d\d:\d\d"), timeout=LONG_MS)
            expect(page.locator("#live")).to_have_class(re.compile("is-stale"))
            expect(row).to_contain_text("2 completed")
            ledger.open_gate("web")
            wait_for(lambda: Job.objects.filter(status=JobState.COMPLETED).count() == 5, what="work meanwhile")
            with web_process(QUEUEOPS_PORT=port):
                is_live(page)
                expect(banner).to_be_hidden()
                expect(row).to_contain_text("5 completed", timeout=LONG_MS)

                server.stop("immediate")
                expect(banner).to_contain_text("No connection since", timeout=LONG_MS)
                server.ensure_running()
                connection.close()
                is_live(page)
                expect(banner).to_be_hidden()
                ledger.open_gate("database")
                expect(row.locator(".state")).to_contain_text("succeeded", timeout=LONG_MS)
                expect(row.get_by_role("progressbar")).to_have_attribute("aria-valuenow", "100")
                assert page.evaluate("window.stays"), "it was loaded again"
                expected = set(JobEvent.objects.filter(id__gt=first).values_list("id", flat=True))

                def has_all() -> bool:
                    page.wait_for_timeout(50)  # lets the page's messages in
                    return expected <= seen

                wait_for(has_all, what="every event")
