"""
Which incidents raise alerts, how soon and how often; which alerts a healthy day raises; how far off forecasts are.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace

from django.conf import settings
from django.test import override_settings

from bench.harness.processes import cluster
from bench.harness.seeding import one_project
from bench.harness.session import Session, run
from tests.support.incidents import (
    INCIDENTS,
    SETTINGS,
    Foretold,
    continue_all,
    live_through_healthy_day,
    live_through_night,
    paged,
    prepare_healthy_day,
)
from tests.support.sandbox import running_sandbox

TOLD_WITHIN_SECONDS = 60.0
CALLS, FULL_CALLS = 240, 900  # calls of each user


def measure(session: Session) -> None:
    report = session.report
    missed, doubled, slowest = 0, 0, 0.0
    for name, kind in ((name, incident.alert) for name, incident in INCIDENTS.items()):
        told = _incident(session, name)
        own = [after for after, one in told if one == kind]
        missed += not own
        doubled += len(told) > 1
        slowest = max(slowest, min(own, default=TOLD_WITHIN_SECONDS))
        report.figure(name, ", ".join(f"{one} after {after:.1f} s" for after, one in told) or "nothing told")
    night = _night(session)
    report.figure("alerts of a night", "; ".join(one[:70] for one in night) or "none", "each acknowledged when it came")
    alerts, judged = _healthy_day(session)
    errors = sorted(error for _, error in judged)
    ranges = sum(told.earliest != told.latest for told, _ in judged)
    kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(alerts).items())
    report.figure("alerts of the healthy day", kinds or "none", "target: at most 3; to a route of every severity")
    report.figure(
        "forecasts of ends", f"{errors[len(errors) // 2]:.1%} off, median", f"{len(errors)}, {ranges} of them two times"
    )
    report.metric("healthy_day_alerts", len(alerts), "alerts sent on a healthy day", "target: at most 3")
    report.metric("night_alerts", len(night), "messages of a night with five causes, acknowledged", "target: 5")
    report.metric("incidents_missed", missed, "incidents nobody was told of within a minute", "target: 0 of 6")
    report.metric("incidents_doubled", doubled, "incidents with more than one message", "target: 0")
    report.metric("slowest_alert_seconds", slowest, "from the incident to its message", "target: 60", unit="s")
    report.metric("eta_error_worst", errors[-1], "a forecast's error, as a share of what was left", "target: 0.15")


def _incident(session: Session, name: str) -> list[tuple[float, str]]:
    """
    Begin an incident; return the alerts that were received, each with its seconds since the beginning and its kind.
    """
    with session.databases.copy("project", one_project) as url, running_sandbox() as sandbox, paged() as pager:
        with cluster(url, environ=SETTINGS):
            begun = time.monotonic()
            with override_settings(QUEUEOPS=replace(settings.QUEUEOPS, allow_loopback_targets=True)):
                INCIDENTS[name].begin(sandbox, name=name)
            time.sleep(TOLD_WITHIN_SECONDS)
            continue_all()
        return [(at - begun, kind) for at, kind in pager.opened()]


def _night(session: Session) -> list[str]:
    """Let five causes happen in one night, each acknowledged before the next; return the messages."""
    with session.databases.copy("project", one_project) as url, running_sandbox() as sandbox, paged() as pager:
        allowed = replace(settings.QUEUEOPS, allow_loopback_targets=True)
        with cluster(url, environ=SETTINGS), override_settings(QUEUEOPS=allowed):
            return live_through_night(sandbox, pager)


def _healthy_day(session: Session) -> tuple[list[str], list[tuple[Foretold, float]]]:
    """
    Run five batches at once. Each is slowed by its user's quota, and all together by the project's quota.

    Returns:
        The kinds of alerts that were received, and each forecast with its error.
    """
    calls = FULL_CALLS if session.full else CALLS
    with session.databases.copy("project", one_project) as url, running_sandbox() as sandbox, paged() as pager:
        prepare_healthy_day(sandbox)
        with cluster(url, environ=SETTINGS):
            judged = live_through_healthy_day(calls)
        return [kind for _, kind in pager.opened()], judged


if __name__ == "__main__":
    run("incidents", measure)
