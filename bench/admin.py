"""How long operators wait for the first byte of each page, and whether a bulk action blocks claims."""

from __future__ import annotations

import http.client
import statistics
import threading
import time
from functools import partial
from urllib.parse import urlencode, urlsplit

from django.contrib import admin
from django.db import connection
from django.urls import reverse

from bench.harness.claims import claim_milliseconds
from bench.harness.operations import RARE_TAG, TO_CANCEL, busy_installation, operators_session
from bench.harness.processes import web
from bench.harness.report import percentile
from bench.harness.session import Session, run
from jobs.models import Batch, BulkOperation, DeadLetter, Executor, Job
from jobs.services.explain.snapshots import batch_counts
from jobs.services.operate import bulk, bulk_run
from jobs.states import JobState

JOBS, CANCELLED = 250_000, 20_000
FULL_JOBS, FULL_CANCELLED = 5_000_000, 100_000
ASKED = 3
CLAIMS, WANTED = 150, 100
MAX_CLAIMS = 200  # the most claims while the bulk action runs: on a slow machine, it outlasts the ready jobs
TARGET_MS = 500
ANSWERED = {http.client.OK, http.client.FOUND}  # a search that finds one job redirects to it


def measure(session: Session) -> None:
    jobs, cancelled = (FULL_JOBS, FULL_CANCELLED) if session.full else (JOBS, CANCELLED)
    seed = partial(busy_installation, jobs=jobs, to_cancel=cancelled)
    with session.databases.copy(f"admin_{jobs}", seed) as url:
        with connection.cursor() as cursor:
            cursor.execute("UPDATE jobs_executor SET heartbeat_at = now()")  # the seeded heartbeats are old
            cursor.execute("SELECT reltuples::bigint FROM pg_class WHERE relname = 'jobs_job'")
            [stored] = cursor.fetchone() or (0,)
            cursor.execute(
                "SELECT sum(reltuples)::bigint FROM pg_class WHERE relkind = 'r' AND relname LIKE 'jobs_jobevent_2%'"
            )
            [events] = cursor.fetchone() or (0,)
        with web(url) as (address, _):
            _pages(session, address)
        _bulk(session, cancelled)
    session.report.figure("jobs, events", f"{stored:,}, {events:,}")


def _pages(session: Session, address: str) -> None:
    cookie = operators_session()
    server = http.client.HTTPConnection(urlsplit(address).netloc, timeout=60)
    taken: dict[str, float] = {}
    for name, path in _addresses().items():
        cold = _first_byte(server, path, cookie)
        taken[name] = statistics.median(_first_byte(server, path, cookie) for _ in range(ASKED))
        session.report.figure(name, f"{taken[name]:.0f} ms", f"cold {cold:.0f} ms" if cold > TARGET_MS else "")
    worst = max(taken, key=lambda name: taken[name])
    late = sorted(name for name, ms in taken.items() if ms > TARGET_MS)
    note = f"target: at most {TARGET_MS} ms; {len(taken)} pages, late: {', '.join(late) or 'none'}"
    session.report.metric("worst_first_byte_ms", taken[worst], "worst page's first byte", note, unit="ms")
    session.report.names["worst_page"] = worst


def _addresses() -> dict[str, str]:
    """Return the addresses of the admin's lists, of searches in the large ones, and of the dashboard and its data."""
    search = reverse("find")  # this loads the admin's screens, whose lists are asked for next
    lists = {
        page.opts.label: reverse(f"admin:{page.opts.app_label}_{page.opts.model_name}_changelist")
        for page in admin.site._registry.values()  # noqa: SLF001 - there is no other way to ask
    }
    jobs, letters = lists["jobs.Job"], lists["jobs.DeadLetter"]
    batch = Batch.objects.exclude(name=TO_CANCEL).order_by("pk")[0]
    middle = Job.objects.filter(batch=batch).order_by("pk")[0]
    newest = Job.objects.order_by("-pk")[0]
    failed = DeadLetter.objects.order_by("pk")[0]
    asked = {f"jobs, {state}": f"{jobs}?state={state}" for state in JobState.values}
    return {
        **lists,
        **asked,
        "jobs, of a small share": f"{jobs}?state=retried&project=project-07&priority=low",
        "jobs, of a user": f"{jobs}?user_id=00000000-0000-4000-8000-000000000007",
        "jobs, of a batch": f"{jobs}?batch_id={batch.pk}",
        "jobs, older": f"{jobs}?before={middle.pk}",
        "jobs, searched": f"{jobs}?q={middle.pk}",
        "a kind": reverse("admin:jobs_job_kind", args=[middle.kind]),
        "dead letters, of a project": f"{letters}?project=project-17",
        "dead letters, of one cause": f"{letters}?fingerprint={failed.fingerprint}",
        "jobs, of a tag that one in 20 has": f"{jobs}?tags=group-8",
        "jobs, of a rare tag": f"{jobs}?tags={RARE_TAG}",
        "jobs, of two tags": f"{jobs}?tags=group-8,even",
        **{
            f"search for {what}": f"{search}?{urlencode({'q': term})}"
            for what, term in {
                "an id": str(middle.pk),
                "a new id's end": str(newest.pk)[-8:],
                "an old id's end": str(middle.pk)[-8:],
                "an end that none has": "00000000",
                "a tag that one in 20 has": "group-8",
                "a rare tag": RARE_TAG,
                "a part of a name": "batch 1",
                "a user": str(middle.user_id),
                "nothing there is": "nothing has this name",
            }.items()
        },
        "a job": reverse("admin:jobs_job_change", args=[middle.pk]),
        "a batch": reverse("admin:jobs_batch_change", args=[batch.pk]),
        "a dead letter": reverse("admin:jobs_deadletter_change", args=[failed.pk]),
        "an executor": reverse("admin:jobs_executor_change", args=[Executor.objects.first().pk]),  # type: ignore[union-attr]
        "front page": reverse("admin:index"),
        "dashboard": reverse("dashboard"),
        "dashboard's data": reverse("ops-data"),
        "charts, a day": f"{reverse('charts-data')}?span=24h",
        "feed": reverse("feed-data"),
        "metrics": "/metrics",
    }


def _first_byte(server: http.client.HTTPConnection, path: str, cookie: str) -> float:
    """
    Return the milliseconds to the answer's first byte. The rest is read, so that the connection can be used again.
    """
    begun = time.monotonic()
    server.request("GET", path, headers={"Cookie": cookie})
    response = server.getresponse()
    taken = (time.monotonic() - begun) * 1000
    body = response.read()
    if response.status not in ANSWERED:
        raise SystemExit(f"{path} was answered with {response.status}: {body[:200]!r}")
    return taken


def _bulk(session: Session, cancelled: int) -> None:
    """Cancel a batch as a worker does, chunk by chunk, while jobs are claimed and completed."""
    before = claim_milliseconds(claims=CLAIMS, wanted=WANTED)
    batch = Batch.objects.get(name=TO_CANCEL)
    operation = bulk.cancel_batch(batch.pk, actor="bench", reason="measured")
    seen: list[int] = []
    ended = threading.Event()
    worker = threading.Thread(target=_carry_out, args=(operation, seen, ended))
    begun = time.monotonic()
    worker.start()
    during: list[float] = []
    while not ended.is_set() and len(during) < MAX_CLAIMS:
        during += claim_milliseconds(claims=20, wanted=WANTED)
    worker.join()
    seconds = time.monotonic() - begun
    operation.refresh_from_db()
    counts = batch_counts([batch.pk])[batch.pk]
    # Jobs that were not cancelled were completed before their chunk's turn.
    if operation.done != counts["cancelled"] or counts["cancelled"] + counts["completed"] != cancelled:
        raise SystemExit(f"the bulk operation ({operation.status}) did {operation.done:,} rows and left {counts}")
    report = session.report
    report.figure("bulk cancel", f"{operation.done:,} rows", f"{seconds:.1f} s, progress seen {len(set(seen))} times")
    report.metric("bulk_claim_p99_ms", percentile(during, 0.99), "claim of 100 during it, p99", unit="ms")
    report.metric("claim_p99_ms", percentile(before, 0.99), "the same without it, p99", unit="ms")


def _carry_out(operation: BulkOperation, seen: list[int], ended: threading.Event) -> None:
    try:
        while bulk_run.run_bulk_chunk(operation.pk):
            seen.append(BulkOperation.objects.values_list("done", flat=True).get(pk=operation.pk))
            time.sleep(bulk_run.seconds_until_due(operation.pk))
    finally:
        connection.close()
        ended.set()


if __name__ == "__main__":
    run("admin", measure)
