"""
Hands alerts over to the routes that want them. Each message is a job, so that it is retried and can be looked at.

Alerts about the use of a limit, and about work that waits for it, are sent once they have lasted for a minute. Only one
alert is sent for all counters of a limit, and it is not sent again if it comes back soon. Alerts about waiting work are
not sent while an alert says that the provider refuses.

A route is told once when an alert that it wants opens, again when the alert's severity rises, and when a critical alert
is over. PagerDuty is also told when any alert that it knows of is over or acknowledged: its incidents would stay open.
The job's idempotency key names alert, route, event and severity, so that nobody is told twice. A later message to a
route about an alert waits until the earlier ones have arrived: otherwise the first could arrive last.

A silenced alert, or one about work that a maintenance window holds, waits until the silence or window ends. It is sent
then if it is still open. If it ends before, and no route was told that it opened, no route is told that it ended.

Alerts of users' allowances may be thousands at once, so alerts of one project, kind and severity are sent together.
Alerts of one cause in several projects are one message, too, for routes that hear of every project: see `alert_groups`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import chain
from operator import attrgetter
from typing import Any, Literal
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import CharField, Exists, F, Func, OuterRef, Q, QuerySet, Value
from django.utils import timezone

from jobs.features.dependencies.dependencies import Named
from jobs.models import Job, OnFailure, PauseSwitch, new_id
from jobs.services.submit.prepare import prepare_job
from jobs.services.submit.spec import JobSpec
from jobs.services.submit.submit import insert_prepared
from queueops.core.clock import Now
from queueops.core.notify import Channel, notify
from queueops.core.processes.isolate_failures import one_by_one
from queueops.core.values.identifiers import first_id_at
from queueops.tenancy.models import Project
from ratelimits.alerts.alerts import COMES_BACK, COMING_AND_GOING
from ratelimits.alerts.silences import silence_of
from ratelimits.models import AlertRoute, AlertSilence, QuotaAlert
from ratelimits.usage.allowance_alerts import OF_ALLOWANCES, OF_THE_QUEUE

from .alert_groups import CAUSES_WAIT, Group, told_now
from .paused import is_quiet

KIND = "queueops.alert"
PROJECT = PauseSwitch.EXEMPT  # the project of the delivery jobs; the first delivery makes the project
SEVERITIES: list[str] = [QuotaAlert.Severity.NOTICE, QuotaAlert.Severity.WARNING, QuotaAlert.Severity.CRITICAL]
CRITICAL = QuotaAlert.Severity.CRITICAL
DIGEST_EVERY = timedelta(minutes=10)  # at least so long between two digests of a group; critical ones do not wait
MAX_IN_DIGEST = 10_000
PASSING = timedelta(seconds=60)  # how long alerts that come and go must last before they are sent
MAX_SILENCED = 1_000  # alerts silenced for a project, or by a window, stay unsent: one look skips at most so many
EXAMPLES = 5  # alerts that a digest shows
ACKNOWLEDGED_LATELY = timedelta(days=1)  # earlier acknowledgements are not looked at any more
MAX_ACKNOWLEDGED = 100  # acknowledged alerts looked at, the newest
MAX_BEFORE = 20  # earlier messages that a later message waits for

Event = Literal["opened", "acknowledged", "resolved", "test"]


@transaction.atomic
def send_unsent(most: int) -> int:
    """
    Submit a delivery job for each route that wants an alert not sent yet, and mark the alert in the same transaction.

    Returns:
        How many jobs were submitted. At most `most` alerts are sent, and MAX_IN_DIGEST of each group of users; the
        rest is for the next call.
    """
    # Alerts that come and go are sent once they have lasted for PASSING. An alert that ends earlier is sent if it comes
    # back and lasts.
    passing = Q(kind__in=COMING_AND_GOING) & ~Q(severity=CRITICAL)
    may_come_back = Q(resolved_at__gt=Now() - COMES_BACK) | Q(resolved_at=None, opened_at__gt=Now() - PASSING)
    routes = list(AlertRoute.objects.filter(enabled=True))
    ended = QuotaAlert.objects.filter(~Q(severity=CRITICAL), kind__in=OF_THE_QUEUE, notified_at=None)
    if not any(route.channel == AlertRoute.Channel.PAGERDUTY for route in routes):
        ended.filter(resolved_at__isnull=False).exclude(passing & may_come_back).update(notified_at=F("resolved_at"))
    found = QuotaAlert.objects.filter(notified_at=None, kind__in=OF_THE_QUEUE).exclude(passing & may_come_back)
    silences = list(AlertSilence.objects.standing().select_related("limit"))
    windows = list(PauseSwitch.objects.filter(window__isnull=False))
    pages = _oldest(found.exclude(_silenced_whole(silences)).filter(pk__gt=_passed.upto), MAX_SILENCED + most)
    oldest = sorted(chain(*pages), key=attrgetter("pk"))
    covered = {one.pk for one in oldest if silence_of(one, silences) or is_quiet(one, windows)}
    audible = [one for one in oldest if one.pk not in covered]
    full = [page[-1].pk for page in pages if len(page) == MAX_SILENCED + most]
    _passed.upto = min(full) if full and len(audible) < most else 0
    # Otherwise, after the silence or window, routes would be told of the end of an alert that they never heard of.
    _settle_untold([one for one in oldest if one.pk in covered and one.resolved_at])
    unsent = told_now(_once_a_limit(audible))[:most]
    told: list[int] = []

    @transaction.atomic
    def tell(group: Group) -> None:
        told.append(_tell_end(routes, group[0]) if group[0].resolved_at else _tell_beginning(routes, group))

    one_by_one(unsent, tell, what="telling of the alert")
    # Mark an alert even if sending it raised: otherwise the oldest alerts would be tried for ever and stop later ones.
    _mark([group[0].pk for group in unsent])
    for first, *others in unsent:
        QuotaAlert.objects.filter(pk=first.pk, resolved_at=None).update(told_with=None)  # it may have got worse since
        QuotaAlert.objects.filter(pk__in=[one.pk for one in others]).update(notified_at=Now(), told_with=first.pk)
    submitted = sum(told) + _send_digests(routes) + _send_acknowledged(routes)
    if submitted:
        notify(Channel.READY)
    return submitted


@dataclass(slots=True)
class _Passed:
    """
    Attributes:
        upto: The next look of this process begins behind this alert. Otherwise alerts that a silence of a project or a
            window covers would fill every look, and hide later ones. 0: it begins at the oldest.
    """

    upto: int = 0


_passed = _Passed()


def _oldest(found: QuerySet[QuotaAlert], most: int) -> Sequence[list[QuotaAlert]]:
    """
    Lock and return the oldest alerts: at most `most` about use and queues, and at most `most` of all other kinds.

    Alerts about use and queues, which may be as many as there are users, would otherwise take all places.
    """
    of_limits = Q(kind__in=COMING_AND_GOING)
    left_out = Q(kind=QuotaAlert.Kind.SATURATED) & Exists(_refusals_told())
    # Without this, alerts that are left out below would fill the places at every look.
    of_use = found.filter(of_limits).exclude(left_out).exclude(_as_grave_as_told())
    return [
        list(some.order_by("pk").select_for_update(skip_locked=True, of=("self",))[:most])
        for some in (found.exclude(of_limits), of_use)
    ]


def _settle_untold(ended: Sequence[QuotaAlert]) -> None:
    """Mark the alerts that are over and that no route was told of, so that they are never sent."""
    # Messages older than this may be deleted, so nobody knows whether an alert as old was told.
    known_since = timezone.now() - timedelta(days=settings.QUEUEOPS.retention_days)
    routes = list(AlertRoute.objects.all()) if ended else []
    keys = {
        one.pk: {
            key
            for first in {one.pk, one.told_with or one.pk}
            for route in routes
            for key in _keys(first, route, "opened")
        }
        for one in ended
        if one.opened_at > known_since
    }
    told = _sent_keys(set().union(*keys.values()))
    untold = [pk for pk, of_alert in keys.items() if not of_alert & told]
    QuotaAlert.objects.filter(pk__in=untold).update(notified_at=F("resolved_at"))


def _silenced_whole(silences: Iterable[AlertSilence]) -> Q:
    """Open alerts of a limit or kind that is silenced in all projects. They are as many as there are users."""
    covered = Q(pk__in=[])
    for silence in silences:
        if not silence.project:
            named = {"limit": silence.limit_id, "kind": silence.kind}
            covered |= Q(**{field: value for field, value in named.items() if value}, resolved_at=None)
    return covered


def _as_grave_as_told() -> Q:
    """Open alerts of use and queues that need not be sent: an alert of the same limit was sent, and is as grave."""
    waiting = QuotaAlert.objects.filter(notified_at=None, kind__in=COMING_AND_GOING, resolved_at=None)
    told = _told_ranks(waiting.values("limit"))
    known = Q(pk__in=[])
    for rank, severity in enumerate(SEVERITIES):
        limits = [limit for limit, grave in told.items() if grave >= rank]
        known |= Q(severity=severity, limit__in=limits, resolved_at=None)
    return known


def _tell_beginning(routes: Sequence[AlertRoute], group: Group) -> int:
    """Send the group as one message to routes of all projects, and alert by alert to routes of one project."""
    told = 0
    for route in routes:
        wanted = [one for one in group if wants(route, one.severity, one.kind, one.projects)]
        for alert in wanted if route.project else wanted[:1] and group[:1]:
            told += _tell([route], "opened", alert.severity, first=alert.pk, content={"alert": alert.pk})
    return told


def _tell_end(routes: Sequence[AlertRoute], alert: QuotaAlert) -> int:
    """Tell that an alert is over. Alerts that were sent as one message are over once all of them are."""
    first = alert.told_with or alert.pk
    goes_on = QuotaAlert.objects.filter(Q(pk=first) | Q(told_with=first), resolved_at=None).exists()
    # An alert that ended while it waited for others of its cause was never sent.
    may_be_untold = "cause" in alert.figures and alert.resolved_at and alert.resolved_at - alert.opened_at < CAUSES_WAIT
    told = 0
    for route in routes:
        about = alert.pk if route.project else first
        if not wants(route, alert.severity, alert.kind, alert.projects) or (goes_on and not route.project):
            continue
        is_page = route.channel == AlertRoute.Channel.PAGERDUTY
        if alert.severity == CRITICAL and not may_be_untold:
            is_wanted = True
        else:
            is_wanted = (is_page or alert.severity == CRITICAL) and _was_told(route, about)
        if is_wanted:
            told += _tell([route], "resolved", alert.severity, first=about, content={"alert": about})
    return told


def _once_a_limit(alerts: Sequence[QuotaAlert]) -> list[QuotaAlert]:
    """
    Leave out alerts of use and queues if an alert of the same limit was sent that is as grave, and open or recent.

    A limit for each user may be full for as many counters as there are users. An alert that was left out is sent later,
    if it is still open when the sent alert has been over for a while.
    """
    told = _told_ranks({one.limit_id for one in alerts if one.limit_id})
    left = []
    for alert in alerts:
        if alert.kind in COMING_AND_GOING and alert.limit_id and alert.resolved_at is None:
            rank = SEVERITIES.index(alert.severity)
            if rank <= told.get(alert.limit_id, -1):
                continue
            told[alert.limit_id] = rank
        left.append(alert)
    return left


def _told_ranks(limits: Collection[int] | QuerySet[Any]) -> dict[int, int]:
    """Return, by limit, the index in SEVERITIES of its gravest sent alert of use and queues that is open or recent."""
    of_limits = QuotaAlert.objects.filter(kind__in=COMING_AND_GOING, limit__in=limits)
    # An alert's end clears its `notified_at`, but an alert that lasted for PASSING had been sent.
    was_told = Q(resolved_at__gt=Now() - COMES_BACK, resolved_at__gte=F("opened_at") + PASSING)
    known = of_limits.filter(was_told | Q(resolved_at=None, notified_at__isnull=False))
    told: dict[int, int] = {}
    for limit, severity in known.order_by().values_list("limit", "severity").distinct():
        told[limit] = max(told.get(limit, -1), SEVERITIES.index(severity))
    return told


def _refusals_told() -> QuerySet[QuotaAlert]:
    """Open or recent alerts that explain why work waits at an alert's counter: its provider refuses calls."""
    lately = Q(resolved_at=None) | Q(resolved_at__gt=Now() - COMES_BACK)
    return QuotaAlert.objects.filter(lately, kind=QuotaAlert.Kind.EXCEEDED, subject=OuterRef("subject"))


@transaction.atomic
def send_test(route: AlertRoute) -> None:
    """Submit a test message to one route."""
    _submit(route, "test", f"test:{new_id()}", {})
    notify(Channel.READY)


def wants(route: AlertRoute, severity: str, kind: str, projects: Collection[str]) -> bool:
    """
    Whether a route is told of an alert.

    Args:
        projects: The alert's projects; empty: the whole installation, whose alerts routes of one project do not want.
    """
    return (
        SEVERITIES.index(severity) >= SEVERITIES.index(route.least_severity)
        and (not route.kinds or kind in route.kinds)
        and (not route.project or route.project in projects)
    )


def _was_told(route: AlertRoute, alert: int) -> bool:
    """Whether the route was told that the alert opened, with whatever severity it had then."""
    return Job.objects.filter(project_id=PROJECT, idempotency_key__in=_keys(alert, route, "opened")).exists()


def _keys(first: int, route: AlertRoute, *events: Event) -> list[str]:
    return [f"{event}:{first}:{route.pk}:{severity}" for event in events for severity in SEVERITIES]


def _sent_keys(keys: Collection[str]) -> set[str]:
    """The keys among these under which a message was submitted."""
    sent = Job.objects.filter(project_id=PROJECT, idempotency_key__in=keys)
    return {key for key in sent.values_list("idempotency_key", flat=True) if key}


def _send_acknowledged(routes: Sequence[AlertRoute]) -> int:
    """Tell PagerDuty that somebody looks after open alerts of which it was told."""
    pagers = [route for route in routes if route.channel == AlertRoute.Channel.PAGERDUTY]
    open_ones = QuotaAlert.objects.filter(resolved_at=None, acknowledged_at__gt=Now() - ACKNOWLEDGED_LATELY)
    alerts = list(open_ones.order_by("-acknowledged_at")[:MAX_ACKNOWLEDGED]) if pagers else []
    pairs = [(alert, route) for alert in alerts for route in pagers]
    asked = [key for alert, route in pairs for key in _keys(alert.pk, route, "opened", "acknowledged")]
    known = _sent_keys(asked)
    return sum(
        _tell([route], "acknowledged", alert.severity, first=alert.pk, content={"alert": alert.pk})
        for alert, route in pairs
        if known.intersection(_keys(alert.pk, route, "opened"))
        and f"acknowledged:{alert.pk}:{route.pk}:{alert.severity}" not in known
    )


def service_of(route: AlertRoute) -> str:
    """Each route is a service of its own: a receiver that does not answer must not hold up other routes."""
    return f"alerts-{route.pk}"


def can_send_email() -> bool:
    return bool(settings.QUEUEOPS.email_url)


def _send_digests(routes: Sequence[AlertRoute]) -> int:
    """Send users' alerts, one message for each project, kind and severity; soon after the last, only critical ones."""
    project = Func(F("subject"), Value("/"), Value(2), function="split_part", output_field=CharField())
    unsent = QuotaAlert.objects.filter(notified_at=None, kind__in=OF_ALLOWANCES).annotate(
        project=project, is_over=Q(resolved_at__isnull=False)
    )
    groups = unsent.order_by().values("kind", "severity", "project", "is_over").distinct()
    if not groups or not _lock_digests():
        return 0
    recent, submitted = _recent_digests(), 0
    for group in groups:
        kind, severity, is_over = group["kind"], group["severity"], group["is_over"]
        is_critical = severity == QuotaAlert.Severity.CRITICAL
        if not (is_critical or is_over) and (kind, severity, group["project"]) in recent:
            continue
        rows = unsent.filter(**group).order_by("pk").select_for_update(skip_locked=True)
        ids = list(rows.values_list("pk", flat=True)[:MAX_IN_DIGEST])
        _mark(ids)
        if ids and (is_critical or not is_over):  # an alert that ended before it was sent need not be sent
            about = {"project": group["project"], "kind": kind, "severity": severity}
            digest = {**about, "count": len(ids), "alerts": ids[:EXAMPLES]}
            content = {"alert": ids[0] if len(ids) == 1 else None, "digest": digest}
            wanted = [route for route in routes if wants(route, severity, kind, {group["project"]})]
            submitted += _tell(wanted, "resolved" if is_over else "opened", severity, first=ids[0], content=content)
    return submitted


def _lock_digests() -> bool:
    """Keep other leaders from sending digests until this one's are committed; False: another leader sends them now."""
    _make_project()
    return bool(Project.objects.filter(pk=PROJECT).select_for_update(skip_locked=True, no_key=True))


def _recent_digests() -> set[tuple[str, str, str]]:
    """Kind, severity and project of the digests that are too recent for another digest."""
    since = first_id_at(timezone.now(), moved_by=-2 * DIGEST_EVERY)  # ids are made by the clocks of many hosts
    jobs = Job.objects.of_project(PROJECT).filter(pk__gte=since, created_at__gt=Now() - DIGEST_EVERY)
    told = jobs.filter(payload__has_key="digest", payload__event="opened").values_list("payload__digest", flat=True)
    return {(digest["kind"], digest["severity"], digest["project"]) for digest in told}


def _mark(ids: Sequence[int]) -> None:
    QuotaAlert.objects.filter(pk__in=ids).update(notified_at=Now())


def _tell(routes: Sequence[AlertRoute], event: Event, severity: str, *, first: int, content: dict[str, Any]) -> int:
    return sum(_submit(route, event, f"{event}:{first}:{route.pk}:{severity}", content) for route in routes)


def _submit(route: AlertRoute, event: Event, key: str, content: dict[str, Any]) -> bool:
    payload = {"route": route.pk, "service": service_of(route), "alert": None, "event": event, **content}
    _make_project()
    before = _on_their_way(route, content) if event in ("acknowledged", "resolved") else []
    named = Named(PROJECT)
    named.read(before)
    # A message that was given up opens no incident any more, so the messages after it go all the same.
    waits = {"after": before, "on_failure": OnFailure.RUN} if before else {}
    spec = JobSpec(kind=KIND, payload=payload, priority="urgent", idempotency_key=key, **waits)
    job = prepare_job(spec, effect_key=f"alert:{key}")
    return bool(insert_prepared([job], project_id=PROJECT, actor="system", named=named))


def _on_their_way(route: AlertRoute, content: Mapping[str, Any]) -> list[UUID]:
    """Messages to a route about the same alert, or group of users, that have not ended."""
    unfinished = Job.objects.of_project(PROJECT).unfinished()
    if alert := content.get("alert"):
        told = unfinished.filter(idempotency_key__in=_keys(alert, route, "opened", "acknowledged"))
    else:
        about = {name: content["digest"][name] for name in ("project", "kind", "severity")}
        told = unfinished.filter(service=service_of(route), payload__digest__contains=about)
    return list(told.order_by("pk").values_list("pk", flat=True)[:MAX_BEFORE])


def _make_project() -> None:
    Project.objects.get_or_create(pk=PROJECT, defaults={"name": "Delivery of alerts"})
