"""Whether a pool of keys gives what its keys allow together, and loses nothing when one of them is revoked."""

from __future__ import annotations

import time
from contextlib import ExitStack

from bench.harness.processes import cluster
from bench.harness.seeding import one_project
from bench.harness.session import Session, run
from jobs.models import DeadLetter, Job
from jobs.services.submit.submit import submit_batch
from jobs.states import JobState
from queueops.tenancy.credential_pools.refusals import absences
from tests.support.credential_pools import make_pool, secret_of
from tests.support.processes import wait_for
from tests.support.sandbox import Sandbox, running_sandbox
from tests.support.saturation import KIND, Quota, set_limits, set_quota

KEYS = [f"key-{number}" for number in range(1, 6)]
WINDOW_SECONDS = 10  # a minute, scaled; a key gives 60 calls in a window
FULL_WINDOW_SECONDS = 60
LATE_SECONDS = 0.15
WINDOWS = 3.5  # any three whole windows in this time are judged
DEPTH = 5_000
REVOKED = KEYS[2]
TAKEN_OUT_SECONDS = 20.0
PROJECT = "pooled"
ALLOW_LOOPBACK = {"QUEUEOPS_ALLOW_LOOPBACK_TARGETS": "on"}


def measure(session: Session) -> None:
    window = FULL_WINDOW_SECONDS if session.full else WINDOW_SECONDS
    quota = Quota("sliding", window, per_project=10**6, late_seconds=LATE_SECONDS)
    with ExitStack() as stack:
        sandbox = stack.enter_context(running_sandbox())
        set_quota(sandbox, quota)
        url = stack.enter_context(session.databases.copy(f"credentials_{DEPTH}", _seed))
        make_pool(members=KEYS, url=sandbox.url, project=PROJECT)
        set_limits(quota, algorithm="sliding_window")
        _flood()
        stack.enter_context(cluster(url, environ=ALLOW_LOOPBACK))
        wait_for(lambda: sandbox.counters()["received"], what="the pool's first call")
        time.sleep(WINDOWS * window)
        until = time.time()
        sandbox.revoke(secret_of(REVOKED))
        wait_for(lambda: _is_out(REVOKED), seconds=TAKEN_OUT_SECONDS + window, what="the revoked key to be taken out")
        time.sleep(2 * window)
        least = _least_of_three_windows(sandbox, window, until)
        calls = sandbox.calls()
        after = [call for call in calls if call["accepted"] and call["at"] > until]
        failed = DeadLetter.objects.count() + Job.objects.filter(status=JobState.FAILED).count()
        attempts = Job.objects.filter(retry_count__gt=0).count()
    report = session.report
    refused = sum(call["cause"] == "provider_quota" for call in calls)
    note = f"target: at least 290; the least of any three minutes in a row; a minute is {window} s"
    report.metric("calls_per_minute", least, "calls a minute of five keys of 60", note)
    report.metric("refusals", refused, "calls above a key's quota", "target: 0; the provider's count")
    report.metric("failed_after_revocation", failed, "jobs failed after a key was revoked", "target: 0")
    spent = sum(call["cause"] == "revoked_key" for call in calls)
    report.figure("calls with the revoked key", str(spent), f"{attempts} jobs spent an attempt; target: 0")
    report.figure("calls of the others afterwards", f"{len(after):,}", f"over at least {2 * window} s; 240 a minute")


def _is_out(name: str) -> bool:
    return any(absence.credential == name for absence in absences())


def _least_of_three_windows(sandbox: Sandbox, window: float, until: float) -> float:
    """Return the least of the accepted calls a window, over any three windows in a row, while all keys worked."""
    times: list[float] = sorted(call["at"] for call in sandbox.calls(accepted=True) if call["at"] <= until)
    span = 3 * window
    begun = [at for at in times if at + span <= until]
    return min(float(sum(at <= other < at + span for other in times)) for at in begun) / 3


def _seed() -> None:
    one_project()


def _flood() -> None:
    lines = [
        {
            "kind": KIND,
            "payload": {"credential": "keys", "spreadsheet_id": f"s{number}", "range": "A1", "values": [[number]]},
        }
        for number in range(DEPTH)
    ]
    submit_batch(lines, project_id=PROJECT, actor="bench")


if __name__ == "__main__":
    run("credentials", measure)
