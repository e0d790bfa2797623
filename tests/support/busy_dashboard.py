"""A dashboard with work of every kind, as tests in a browser open it. Its fixtures are in tests/browser/conftest.py."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db.models.functions import Now
from django.utils import timezone
from playwright.sync_api import Page, expect

from dashboards.services.shared import cache
from jobs.features.flow.bins import ANSWERS, DURATION_MS, SIZE_BYTES
from jobs.lanes import lane_name
from jobs.models import BACKLOG, Executor, FlowSample
from jobs.states import JobState
from ratelimits.alerts.alerts import open_alert
from ratelimits.limiter.decide import Call, decide
from ratelimits.limits import catalogue
from ratelimits.models import Counter, QuotaAlert
from ratelimits.subjects import Subject
from ratelimits.tuning import limits
from tests.factories import make_batch, make_dead_letters, make_jobs

WRITE = Subject("google-sheets", "write", "acme", "reports@acme.example")


@pytest.fixture
def fresh_figures() -> Iterator[None]:
    """With nothing that another test's dashboard has kept."""
    catalogue.forget()
    cache.forget_all()
    yield
    catalogue.forget()
    cache.forget_all()


@pytest.fixture
def busy() -> dict[str, Any]:
    """Work of every kind: held by a limit, running, failed; with a past of 15 minutes."""
    for number, role in enumerate(("general", "general", "quarantine")):
        seats = {"slots": 1 if role == "quarantine" else 40, "in_flight": [12, 31, 0][number]}
        Executor.objects.create(
            id=uuid4(), host="worker-1", pid=4100 + number, process_started_at=1.0, cluster_pid=40, role=role, **seats
        )
    sheets = {"service": "google-sheets", "scope": "project", "capacity": 300, "provider_quota": 300}
    limits.create_limit({"name": "sheets-write", "call_type": "write", **sheets}, actor="user:1")
    limits.create_limit({"name": "sheets-read", "call_type": "read", **sheets}, actor="user:1")
    limits.create_limit({"name": "llm-tokens", "service": "llm", "unit": "tokens", "capacity": 30_000}, actor="user:1")
    decide([Call(WRITE, kind="google_sheets.values_update")] * 300)
    decide([Call(WRITE._replace(call_type="read"), kind="google_sheets.values_get")] * 204)
    decide([Call(Subject("llm", "write", "acme", "u", "small"), cost=1_500, kind="llm.generate")] * 8)
    Counter.objects.filter(limit__name="llm-tokens").update(pressure=0.6, pressure_changed_at=Now())
    report = make_batch(name="Monthly report, all regions", rate_per_second=4.85)
    lane = lane_name(WRITE, project="acme", user="")
    make_jobs(420, state=JobState.RATE_LIMITED, batch=report, service="google-sheets", call_type="write", lane=lane)
    make_jobs(610, state=JobState.COMPLETED, batch=report)
    make_jobs(12, state=JobState.IN_PROGRESS, batch=report)
    make_dead_letters(3, batch=report, error_code="forbidden", error_message="HTTP 403: no access to this sheet")
    paused = make_batch(name="Backfill 2024", project="globex", paused=True)
    make_jobs(40, batch=paused, project="globex")
    make_jobs(25, batch=paused, project="globex", state=JobState.COMPLETED)
    make_jobs(7, state=JobState.RETRIED, project="initech")
    refused = "sheets-write, project:acme: the provider refused with 429; retry after 30 s"
    open_alert("exceeded", "1:project:acme", severity="critical", message=refused, figures={})
    waits = "sheets-read, project:acme: 204 of 300 requests a minute used, 68 %"
    open_alert("usage", "2:project:acme", severity="notice", message=waits, figures={}, threshold=60)
    QuotaAlert.objects.filter(kind="usage").update(acknowledged_at=Now(), acknowledged_by="user:1")
    some_past()
    cache.forget_all()
    return {"report": report}


def some_past() -> None:
    """Samples of fifteen minutes: a burst, then a limit at work."""
    begin = timezone.now().replace(microsecond=0)
    begin -= timedelta(seconds=begin.second % 10)
    for step in range(90):
        done = 48 + (step * 7) % 11 if step > 30 else 120 - step
        latencies = [0] * (len(DURATION_MS) + 1)
        latencies[6], latencies[7], latencies[8], latencies[10] = done, done // 2, done // 6, done // 20
        sizes = [0] * (len(SIZE_BYTES) + 1)
        sizes[2], sizes[3], sizes[5] = done, done // 3, done // 12
        answers = dict.fromkeys(ANSWERS, 0) | {
            "2xx": done,
            "429": 3 if step in {40, 41, 77} else 0,
            "4xx": step % 9 == 0,
        }
        backlog = {"queued": max(40, 900 - step * 20), "rate_limited": min(420, step * 6), "in_progress": 12}
        FlowSample.objects.create(
            span_seconds=10,
            at=begin - timedelta(seconds=10 * (90 - step)),
            service="",
            submitted=done,
            completed=done,
            retried=(step % 8 == 0) * 4,
            deferred=max(0, step - 30) // 6,
            failed=int(step % 20 == 0),
            answers=[int(answers[name]) for name in ANSWERS],
            sizes=sizes,
            size_bytes=done * 9000,
            latencies=latencies,
            latency_ms=done * 160.0,
            delays=latencies[::-1],
            delay_ms=done * 12.0,
            backlog=[{**dict.fromkeys(BACKLOG, 0), **backlog}[name] for name in BACKLOG],
        )


def open_dashboard(page: Page) -> None:
    page.goto("/")
    expect(page.locator("#verdict a")).to_be_visible()
