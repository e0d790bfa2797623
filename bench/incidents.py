"""Which incidents are told, how soon and how often; what a healthy day tells; how true forecasts of its ends are."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

from django.conf import settings
from django.test import override_settings
from django.utils import timezone

from bench.harness.processes import cluster
from bench.harness.seeding import one_project
from bench.harness.session import Session, run
from jobs.models import Batch
from jobs.services.explain.snapshots import batch_snapshot
from jobs.services.submit.submit import submit_batch
from tests.support.incidents import INCIDENTS, SETTINGS, continue_all, paged
from tests.support.sandbox import running_sandbox
from tests.support.saturation import Account, Quota, cell_write, open_accounts, set_limits, set_quota

TOLD_WITHIN_SECONDS = 60.0
USERS = [Account("acme", f"u{number}") for number in range(5)]  # who fill the project's quota together
CALLS, FULL_CALLS = 240, 900  # of each
EVERY_SECONDS = 5.0
KNOWN_AFTER, UNTIL_BEFORE = timedelta(seconds=20), timedelta(seconds=30)  # forecasts that are judged
HEALTHY_QUOTA = Quota("aligned", 60)


@dataclass(frozen=True, slots=True)
class Foretold:
    """At `at`, that a batch would end between two times."""

    batch: UUID
    at: datetime
    earliest: datetime
    latest: datetime


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
    alerts, judged = _healthy_day(session)
    errors = [_error(*one) for one in judged]
    ranges = sum(told.earliest != told.latest for told, _ in judged)
    kinds = ", ".join(f"{count} {kind}" for kind, count in Counter(alerts).items())
    report.figure("alerts of the healthy day", kinds or "none", "target: at most 3; to a route of every severity")
    median = sorted(errors)[len(errors) // 2]
    report.figure("forecasts of ends", f"{median:.1%} off, median", f"{len(errors)}, {ranges} of them two times")
    report.metric("healthy_day_alerts", len(alerts), "alerts sent on a healthy day", "target: at most 3")
    report.metric("incidents_missed", missed, "incidents nobody was told of within a minute", "target: 0 of 6")
    report.metric("incidents_doubled", doubled, "incidents with more than one message", "target: 0")
    report.metric("slowest_alert_seconds", slowest, "from the incident to its message", "target: 60", unit="s")
    report.metric("eta_error_worst", max(errors), "a forecast's error, as a share of what was left", "target: 0.15")


def _incident(session: Session, name: str) -> list[tuple[float, str]]:
    """How many seconds after it began which kinds of alerts were received."""
    with session.databases.copy("project", one_project) as url, running_sandbox() as sandbox, paged() as pager:
        with cluster(url, environ=SETTINGS):
            begun = time.monotonic()
            with override_settings(QUEUEOPS=replace(settings.QUEUEOPS, allow_loopback_targets=True)):
                INCIDENTS[name].begin(sandbox, name=name)
            time.sleep(TOLD_WITHIN_SECONDS)
            continue_all()
        return [(at - begun, kind) for at, kind in pager.opened()]


def _healthy_day(session: Session) -> tuple[list[str], list[tuple[Foretold, datetime]]]:
    """
    Five batches at once, each of which its user's quota holds back, and all together the project's.

    Returns:
        The kinds of alerts that were received, and each forecast with the end that it foretold.
    """
    calls = FULL_CALLS if session.full else CALLS
    with session.databases.copy("project", one_project) as url, running_sandbox() as sandbox, paged() as pager:
        set_quota(sandbox, HEALTHY_QUOTA)
        set_limits(HEALTHY_QUOTA)
        open_accounts(USERS, url=sandbox.url)
        with cluster(url, environ=SETTINGS):
            for user in USERS:
                lines = [cell_write(user, spreadsheet=f"{user.user}-{number}") for number in range(calls)]
                submit_batch(lines, project_id=user.project, actor="bench", name=user.user)
            foretold = []
            while Batch.objects.filter(finished_at=None).exists():
                foretold += _forecasts()
                time.sleep(EVERY_SECONDS)
        ends = {batch.pk: batch.finished_at for batch in Batch.objects.all() if batch.finished_at}
        judged = [(one, ends[one.batch]) for one in foretold if ends[one.batch] - one.at > UNTIL_BEFORE]
        return [kind for _, kind in pager.opened()], judged


def _forecasts() -> list[Foretold]:
    now, found = timezone.now(), []
    for batch in Batch.objects.filter(finished_at=None):
        told = batch_snapshot(batch)
        if told.eta and now - batch.created_at > KNOWN_AFTER:
            found.append(Foretold(batch.pk, now, told.eta_earliest or told.eta, told.eta))
    return found


def _error(told: Foretold, end: datetime) -> float:
    """How far the end was from what was told, as a share of the time that was left."""
    off = max(told.earliest - end, end - told.latest, timedelta())
    return off / (end - told.at)


if __name__ == "__main__":
    run("incidents", measure)
