"""Looks every few seconds, in bounded reads, for trouble that operators must know of and the limiter does not see."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from django.conf import settings
from django.db.models import Q, Sum
from django.utils import timezone

from jobs.features import FEATURES
from jobs.features.outages.outages import grouped, open_breakers
from jobs.features.watches.watch_unserved import watch_unserved
from jobs.models import (
    WHOLE_PROJECT,
    Batch,
    DeadLetter,
    Executor,
    JobCount,
    PauseSwitch,
    RefusedCalls,
    ServiceBreaker,
)
from jobs.services.claim.ready import going_projects, oldest_ready
from jobs.services.upkeep.worker_deaths import watch_worker_deaths
from jobs.states import GuardState
from queueops.core.clock import Now
from queueops.core.postgres.horizon import (
    MAX_NOTIFICATIONS_SHARE,
    most_dead_rows,
    notification_queue_share,
    oldest_transaction,
)
from queueops.core.processes.isolate_failures import one_by_one
from queueops.core.sealing import opened_if
from queueops.core.values.numbers import numbered
from ratelimits.alerts.alerts import Opening, reconcile
from ratelimits.models import Charge, QuotaAlert
from ratelimits.money.budget_alerts import tend_budget_alerts
from ratelimits.money.spend import resolve_priced
from ratelimits.subjects import MAX_ID_LENGTH
from ratelimits.tuning.resolve_quiet_alerts import resolve_quiet_alerts
from ratelimits.tuning.watch_overrides import watch_overrides
from ratelimits.usage.allowance_alerts import tend_allowance_alerts

from .failing import KEPT_SHARE, MAX_SHARE, SERIOUS_SHARE, Failing, failing_services, refusing_services
from .notify_alerts import send_unsent
from .paused import watch_paused
from .watch_audit import watch_audit
from .watch_backups import watch_backups
from .watch_credentials import watch_credentials
from .watch_lanes import StaleLane, watch_lanes
from .watch_letters import causes_told, watch_dead_letters
from .watch_runs import watch_runs

Kind, Severity = QuotaAlert.Kind, QuotaAlert.Severity

EVERYWHERE = "*"
MAX_PROJECTS_WATCHED = 200  # projects whose oldest ready job is looked at, those with the most queued jobs first
LATE_LOOP_MS = 10_000  # a loop that is late by three times as much gets its process killed
MAX_BREAKERS = 1000
MAX_PROJECTS_NAMED = 20  # projects of an outage
CALM = timedelta(seconds=60)  # how long a target must have answered before its outage is over
HELD_TOLD_FOR = timedelta(minutes=1)  # after the last job that held an executor's loop, or after the executor's end
LEAK_AFTER = timedelta(minutes=5)  # expired charges are reclaimed within seconds
MAX_LEAKS = 1000
SENT_AT_ONCE = 50
# Subjects of the alerts about what the database cannot clear.
TRANSACTION, DEAD_ROWS, NOTIFICATIONS = "transaction", "dead rows", "notifications"
MAX_DEAD_ROWS = 1_000_000  # a table with more dead rows opens an alert, if its live rows are fewer


def tend_alerts() -> None:
    """
    Open, update and resolve the alerts that the limiter's decisions do not raise, and hand over unsent alerts.

    For one process at a time, every few seconds; two at once do no harm. Reads a bounded number of rows however long
    the queue is.
    """
    watches: tuple[Callable[[], object], ...] = (
        resolve_quiet_alerts,
        watch_dead_letters,
        lambda: watch_ready(watch_lanes()),
        watch_runs,
        watch_executors,
        watch_worker_deaths,
        lambda: reconcile(Kind.NO_EXECUTOR, []),  # an executor runs this watch
        watch_outages,
        watch_failing,
        watch_credentials,
        watch_unserved,
        watch_paused,
        watch_charges,
        watch_overrides,
        watch_horizon,
        watch_audit,
        watch_backups,
        *(feature.find(name) for feature in FEATURES for name in feature.watches),
        tend_allowance_alerts,
        tend_budget_alerts,
        resolve_priced,
        lambda: send_unsent(SENT_AT_ONCE),
    )
    with opened_if(lambda: False):  # do not open sealed errors: alerts quote them, and are stored and sent unsealed
        one_by_one(watches, lambda watch: watch(), what="the watch")


def watch_ready(stale_lanes: list[StaleLane]) -> None:
    """Alert about projects whose oldest ready job waits too long though nothing holds it back."""
    now, allowed = timezone.now(), timedelta(minutes=settings.QUEUEOPS.alert_oldest_ready_minutes)
    switches = PauseSwitch.objects.filter(scope__in=[PauseSwitch.Scope.PROJECT, PauseSwitch.Scope.GLOBAL])
    paused = set(switches.values_list("key", flat=True))  # the global switch has an empty key
    oldest = oldest_ready(_busiest_projects())
    for lane in [] if "" in paused else [one for one in stale_lanes if one.project not in paused]:
        oldest[lane.project] = min(oldest.get(lane.project, lane.since), lane.since)
    found = [
        Opening(
            Kind.OLDEST_READY,
            project,
            Severity.WARNING,
            f"{project}: the oldest ready job has waited {_minutes(now - since)}; no limit, pause or schedule holds it",
            {"since": since.isoformat()},
        )
        for project, since in oldest.items()
        if now - since > allowed
    ]
    reconcile(Kind.OLDEST_READY, found)


def watch_executors() -> None:
    """
    Alert about executors that went silent or whose handlers block the event loop. The alert ends when the executor
    answers or its row is deleted.

    The alert about an executor that its cluster killed stays for a while.
    """
    silent = Now() - timedelta(seconds=settings.QUEUEOPS.lease_seconds)
    late = Q(loop_lag_ms__gt=LATE_LOOP_MS) | Q(loop_held_at__gt=Now() - HELD_TOLD_FOR)
    stuck = Executor.objects.filter(Q(heartbeat_at__lt=silent) | late).order_by("pk")
    killed = QuotaAlert.objects.filter(figures__killed=True, opened_at__gt=Now() - HELD_TOLD_FOR, resolved_at=None)
    keep = set(killed.filter(kind=Kind.STUCK_EXECUTOR).values_list("subject", flat=True))
    reconcile(Kind.STUCK_EXECUTOR, [_stuck(executor) for executor in stuck[:MAX_PROJECTS_WATCHED]], keep=keep)


def watch_outages() -> None:
    """Alert about targets that do not answer, once for all projects, until they have answered for a while."""
    found = []
    for name, out in grouped(open_breakers(MAX_BREAKERS)).items():
        projects, held = {one.project_id for one in out}, sum(one.holds for one in out)
        who = f"{len(projects)} projects" if len(projects) > 1 else next(iter(projects))
        found.append(
            Opening(
                Kind.OUTAGE,
                name[:MAX_ID_LENGTH],
                Severity.CRITICAL if len(projects) > 1 else Severity.WARNING,
                f"{name} does not answer {who}; {numbered(held, 'job waits', 'jobs wait')} unharmed",
                {
                    "projects": sorted(projects)[:MAX_PROJECTS_NAMED],
                    "held": held,
                    "since": min(one.opened_at for one in out if one.opened_at).isoformat(),
                    "probes": sum(one.probes for one in out),
                },
            )
        )
    # A target that fails on and off counts as one outage.
    lately = ServiceBreaker.objects.filter(opened_at=None, closed_at__gt=Now() - CALM)[:MAX_BREAKERS]
    reconcile(Kind.OUTAGE, found, keep={name[:MAX_ID_LENGTH] for name in grouped(lately)})


def watch_failing() -> None:
    """
    Alert about services most of whose attempts fail, unless an outage or an alert of dead letters says so already. Also
    alert about services that refuse every call for long: their jobs are put back each time, and no attempt fails.
    """
    out = set(
        ServiceBreaker.objects.filter(Q(opened_at__isnull=False) | Q(closed_at__gt=Now() - CALM)).values_list(
            "service", flat=True
        )
    )
    failing = [one for one in failing_services(share=KEPT_SHARE) if one.service not in out]
    found = [
        Opening(
            Kind.FAILING,
            one.service,
            Severity.CRITICAL if one.share >= SERIOUS_SHARE else Severity.WARNING,
            one.words,
            {"attempts": one.attempts, "share": round(one.share, 3), "error_code": one.code},
        )
        for one in failing
        if one.share >= MAX_SHARE and not _is_told_by_letters(one)
    ]
    told = {one.subject for one in found}
    found += [
        Opening(
            Kind.FAILING,
            one.service,
            Severity.CRITICAL,
            one.words,
            {"seconds": round(one.seconds), "refused": one.reason},
        )
        for one in refusing_services()
        if one.service not in told | out
    ]
    reconcile(Kind.FAILING, found, keep={one.service for one in failing})


def _is_told_by_letters(failing: Failing) -> bool:
    """Whether the error of a service's attempts has an open alert of dead letters, or has stopped a batch or calls."""
    stops = RefusedCalls.objects.filter(service=failing.service, code=failing.code, stopped_at__isnull=False)
    guards = Batch.objects.filter(finished_at=None, guard_state=GuardState.STOPPED, guard__code=failing.code)
    if stops.exists() or guards.exists():
        return True
    letters = DeadLetter.objects.open().filter(service=failing.service, error_code=failing.code)
    return letters.filter(fingerprint__in={cause.fingerprint for cause in causes_told()}).exists()


def watch_charges() -> None:
    """Alert when estimates of crashed calls are not taken back: a part of the quota is lost until they are."""
    expired = Charge.objects.filter(expires_at__lt=Now() - LEAK_AFTER).order_by()
    count = expired.values("pk")[:MAX_LEAKS].count()
    calls = numbered(count, "call", before="at least " * (count == MAX_LEAKS))
    message = f"{calls} ended without settling, and no estimate was taken back; that quota is lost"
    leak = Opening(Kind.CHARGE_LEAK, EVERYWHERE, Severity.WARNING, message, {"charges": count})
    reconcile(Kind.CHARGE_LEAK, [leak] if count else [])


def watch_horizon() -> None:
    """Alert about a transaction that stays open, and about dead rows and notifications that pile up."""
    found, oldest = [], oldest_transaction()
    if oldest and oldest.seconds > settings.QUEUEOPS.alert_transaction_minutes * 60:
        of = f"process {oldest.pid}, {oldest.state}" if oldest.pid else f"prepared as {oldest.query}"
        open_for = _minutes(timedelta(seconds=oldest.seconds))
        message = (
            f"A transaction of {oldest.who} ({of}) has been open for {open_for}; no row deleted since is cleared away"
        )
        found.append(Opening(Kind.HORIZON, TRANSACTION, Severity.WARNING, message, {"seconds": round(oldest.seconds)}))
    for table, dead, live in most_dead_rows(1):
        if dead > max(MAX_DEAD_ROWS, live):
            message = f"{table} has {dead:,} dead rows beside {live:,} that live: claims and lists slow down"
            found.append(Opening(Kind.HORIZON, DEAD_ROWS, Severity.WARNING, message, {"dead": dead, "live": live}))
    if (share := notification_queue_share()) > MAX_NOTIFICATIONS_SHARE:
        message = (
            f"The database's queue of notifications is {share:.0%} full, as a session that listens has left its"
            " transaction open; once it is full, no job can be submitted or ended"
        )
        found.append(Opening(Kind.HORIZON, NOTIFICATIONS, Severity.CRITICAL, message, {"percent": round(100 * share)}))
    reconcile(Kind.HORIZON, found)


def _busiest_projects() -> list[str]:
    counted = (
        JobCount.objects.filter(batch_id=WHOLE_PROJECT, project_id__in=going_projects().values("pk"))
        .values("project_id")
        .annotate(total=Sum("queued"))
        .filter(total__gt=0)
        .order_by("-total")
    )
    return [row["project_id"] for row in counted[:MAX_PROJECTS_WATCHED]]


def _stuck(executor: Executor) -> Opening:
    silent = timezone.now() - executor.heartbeat_at
    if silent > timedelta(seconds=settings.QUEUEOPS.lease_seconds):
        what = f"has been silent for {_minutes(silent)}; its jobs come back when their leases lapse"
    elif executor.loop_held_at and timezone.now() - executor.loop_held_at < HELD_TOLD_FOR:
        what = f"stood still for its other jobs: the handler of {executor.loop_held_by} held its event loop"
    else:
        what = f"answers {executor.loop_lag_ms / 1000:,.0f} s late: a handler blocks its event loop"
    return Opening(
        Kind.STUCK_EXECUTOR,
        str(executor.pk),
        Severity.WARNING,
        f"Executor {executor} {what}",
        {"in_flight": executor.in_flight, "loop_lag_ms": round(executor.loop_lag_ms)},
    )


def _minutes(time: timedelta) -> str:
    seconds = time.total_seconds()
    return f"{seconds / 60:,.0f} min" if seconds >= 60 else f"{seconds:.0f} s"  # noqa: PLR2004 - a minute
