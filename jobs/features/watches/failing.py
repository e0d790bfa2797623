"""Finds services most of whose attempts fail, whatever the cause, from counts of attempts and in bounded reads."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar

from django.db.models import F, Q, Sum
from django.utils import timezone

from jobs.features.flow.flow import COARSE_SECONDS, FINE_SECONDS, LATE_SECONDS
from jobs.models import FlowSample, JobEvent
from jobs.states import EventType
from queueops.core.clock import Now
from ratelimits.alerts.alerts import lasting
from ratelimits.models import CounterFeedback, QuotaAlert

SECONDS = 60  # how far back attempts are counted
MIN_ATTEMPTS = 20  # with fewer attempts in that time, no alert opens
MAX_SHARE, SERIOUS_SHARE = 0.5, 0.9  # the failed share of attempts from which an alert opens, and is serious
KEPT_SHARE = 0.25  # an open alert ends below this share
FAILURES_LOOKED_AT = 2000  # newest events, for the commonest error
NO_JOB_THROUGH = timedelta(minutes=15)  # a provider that has refused for a shorter time is left to the limits
REFUSALS = (QuotaAlert.Kind.EXCEEDED, QuotaAlert.Kind.UNLIMITED)
MAX_REFUSALS = 500  # alerts looked at, the oldest


@dataclass(frozen=True, slots=True)
class Failing:
    """
    Attributes:
        share: Failed attempts among the attempts that ended in the last minute, 0 to 1.
        code: The commonest error lately; empty: the newest events have no error.
    """

    service: str
    attempts: int
    share: float
    code: str = ""

    cause: ClassVar = "This is no limit at work: look at its errors."

    @property
    def words(self) -> str:
        """`97 % of attempts to S fail: connection_broken`."""
        return (
            f"{self.share:.0%}".replace("%", " %")
            + f" of attempts to {self.service} fail"
            + (f": {self.code}" if self.code else "")
        )


@dataclass(frozen=True, slots=True)
class Refusing:
    """
    A service whose provider refuses every call: a limit alone would let some call through in NO_JOB_THROUGH.

    Attributes:
        seconds: Time since its first refusal; no job of it has succeeded since.
        reason: The last refusal, as its alert has it.
    """

    service: str
    seconds: float
    reason: str

    cause: ClassVar = "Its work waits unharmed. Look at the account and its quota at the provider."

    @property
    def words(self) -> str:
        """`google-sheets has let no job through for 32 min: google-sheets refused: …`."""
        return f"{self.service} has let no job through for {lasting(self.seconds)}: {self.reason}"


def refusing_services() -> list[Refusing]:
    """The services that have refused for NO_JOB_THROUGH and had no successful job since, the longest first."""
    told = QuotaAlert.objects.filter(kind__in=REFUSALS, resolved_at=None, opened_at__lt=Now() - NO_JOB_THROUGH)
    first: dict[str, QuotaAlert] = {}
    for alert in told.exclude(limit=None).select_related("limit").order_by("opened_at")[:MAX_REFUSALS]:
        assert alert.limit is not None  # noqa: S101 - by the filter
        first.setdefault(alert.limit.service, alert)
    now = timezone.now()
    return [
        Refusing(service, (now - alert.opened_at).total_seconds(), alert.message.partition(";")[0])
        for service, alert in first.items()
        if _refuses_all(alert, service)
    ]


def _refuses_all(alert: QuotaAlert, service: str) -> bool:
    """Whether the alert's counter was refused lately and no job of the service has succeeded since the alert opened."""
    lately = CounterFeedback.objects.filter(counter=alert.subject, at__gt=Now() - NO_JOB_THROUGH)
    if not lately.exists():
        return False
    # The coarse span in which the alert opened may count jobs from before the alert, and is left out. Fine spans are
    # kept long enough to cover its time.
    since = alert.opened_at + timedelta(seconds=COARSE_SECONDS)
    after = Q(span_seconds=FINE_SECONDS, at__gte=alert.opened_at) | Q(span_seconds=COARSE_SECONDS, at__gte=since)
    return not FlowSample.objects.filter(after, service=service, completed__gt=0).exists()


def troubled_services() -> list[Failing | Refusing]:
    """Services in trouble: services that refuse everything come first, then services that fail."""
    return [*refusing_services(), *failing_services()]


def failing_services(*, share: float = MAX_SHARE) -> list[Failing]:
    """The services with at least `share` of their attempts failed in the last minute, the worst first."""
    since = Now() - timedelta(seconds=SECONDS + LATE_SECONDS)
    rows = (
        FlowSample.objects.filter(span_seconds=FINE_SECONDS, at__gte=since)
        .exclude(service="")
        .values("service")
        .annotate(bad=Sum(F("failed") + F("retried")), good=Sum("completed"))
        .order_by()
    )
    found = [
        Failing(row["service"], row["bad"] + row["good"], row["bad"] / (row["bad"] + row["good"]))
        for row in rows
        if row["bad"] + row["good"] >= MIN_ATTEMPTS and row["bad"] >= share * (row["bad"] + row["good"])
    ]
    codes = _codes() if found else {}
    named = [Failing(one.service, one.attempts, one.share, codes.get(one.service, "")) for one in found]
    return sorted(named, key=lambda one: (-one.share, one.service))


def _codes() -> dict[str, str]:
    """The commonest error of each service among the newest events."""
    newest = JobEvent.objects.order_by("-id").values_list("event_type", "service", "data__error_code")[
        :FAILURES_LOOKED_AT
    ]
    counted: dict[str, Counter[str]] = {}
    for kind, service, code in newest:
        if kind == EventType.STATE_CHANGE and service and code:
            counted.setdefault(service, Counter())[str(code)] += 1
    return {service: codes.most_common(1)[0][0] for service, codes in counted.items()}
