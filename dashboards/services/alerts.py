"""Open alerts for the dashboard: the queue's, then the newest about single users, of which there may be very many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import Case, IntegerField, Value, When

from dashboards.services.shared.cache import CachedRead
from dashboards.services.shared.wire import iso, link
from ratelimits.alerts.silences import silence_of
from ratelimits.models import AlertSilence, QuotaAlert
from ratelimits.usage.allowance_alerts import OF_ALLOWANCES, OF_THE_QUEUE

MAX_ALERTS = 20
ALERTS_KEPT_SECONDS = 30.0  # reading users' open alerts is too slow for every second
_GRAVITY = {QuotaAlert.Severity.CRITICAL: 0, QuotaAlert.Severity.WARNING: 1, QuotaAlert.Severity.NOTICE: 2}


def open_alerts() -> Sequence[QuotaAlert]:
    """
    Return the queue's alerts, then users'. The queue's are sorted: unacknowledged first, then the gravest, then the
    newest.
    """
    severities = [When(severity=severity, then=Value(place)) for severity, place in _GRAVITY.items()]
    gravity = Case(*severities, output_field=IntegerField())
    seen = Case(When(acknowledged_at=None, then=Value(0)), default=Value(1), output_field=IntegerField())
    rows = QuotaAlert.objects.filter(kind__in=OF_THE_QUEUE, resolved_at=None).annotate(gravity=gravity)
    found: list[QuotaAlert] = list(rows.order_by(seen, "gravity", "-opened_at", "-pk")[:MAX_ALERTS])
    if len(found) < MAX_ALERTS:
        of_users = QuotaAlert.objects.filter(pk__in=_of_users.get(), resolved_at=None, acknowledged_at=None)
        found += of_users.order_by("-opened_at", "-pk")[: MAX_ALERTS - len(found)]
    return found


def alert_row(alert: QuotaAlert, people: Mapping[str, str], silences: Sequence[AlertSilence]) -> dict[str, Any]:
    silence = silence_of(alert, silences)
    return {
        "id": alert.pk,
        "kind": alert.kind,
        "severity": alert.severity,
        "message": alert.message,
        "opened_at": iso(alert.opened_at),
        "forecast_at": iso(alert.forecast_at),
        "acknowledged_at": iso(alert.acknowledged_at),
        "acknowledged_by": people.get(alert.acknowledged_by, alert.acknowledged_by),
        "silenced_until": iso(silence.until) if silence else None,
        "href": link("ratelimits_quotaalert", alert.pk),
    }


def _newest_of_users() -> list[int]:
    rows = QuotaAlert.objects.filter(kind__in=OF_ALLOWANCES, resolved_at=None, acknowledged_at=None)
    return list(rows.order_by("-opened_at", "-pk").values_list("pk", flat=True)[:MAX_ALERTS])


_of_users = CachedRead(_newest_of_users, seconds=ALERTS_KEPT_SECONDS)
