"""Services most of whose attempts fail, whatever the cause: read from what flowed, in bounded reads."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta

from django.db.models import F, Sum

from jobs.models import FlowSample, JobEvent
from jobs.services.explain.flow import FINE_SECONDS, LATE_SECONDS
from jobs.states import EventType
from queueops.core.clock import Now

SECONDS = 60  # looked back
LEAST_ATTEMPTS = 20  # in that time
MOST_SHARE, SERIOUS_SHARE = 0.5, 0.9  # of the attempts
KEPT_SHARE = 0.25  # an alert stays open down to it
FAILURES_LOOKED_AT = 2000  # newest events, for the commonest error


@dataclass(frozen=True, slots=True)
class Failing:
    """
    Attributes:
        share: Of the attempts that ended in the last minute, 0 to 1.
        code: The commonest error lately; empty: none is among the newest events.
    """

    service: str
    attempts: int
    share: float
    code: str = ""

    @property
    def words(self) -> str:
        """`97 % of attempts to S fail: connection_broken`."""
        return (
            f"{self.share:.0%}".replace("%", " %")
            + f" of attempts to {self.service} fail"
            + (f": {self.code}" if self.code else "")
        )


def failing_services(*, share: float = MOST_SHARE) -> list[Failing]:
    """The services of whose attempts at least `share` failed in the last minute, the worst first."""
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
        if row["bad"] + row["good"] >= LEAST_ATTEMPTS and row["bad"] >= share * (row["bad"] + row["good"])
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
