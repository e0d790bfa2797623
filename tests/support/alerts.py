"""Opening and resolving single alerts, as watches and decisions do for many."""

from __future__ import annotations

from ratelimits.alerts.alerts import open_all, resolve, saturation
from ratelimits.limits.catalogue import Rule
from ratelimits.models import QuotaAlert


def resolve_alert(kind: str, subject: str, threshold: int | None = None) -> int:
    """Resolve the open alerts of a kind and subject, of one threshold or all. Returns how many."""
    alerts = QuotaAlert.objects.filter(kind=kind, subject=subject)
    return resolve(alerts if threshold is None else alerts.filter(threshold=threshold))


def note_saturated(
    rule: Rule, key: str, *, waiting: int, clears_at: float | None, now: float, more: bool = False
) -> QuotaAlert | None:
    """Open or update the alert of `saturation`; returns it when it was not open."""
    opened = open_all([saturation(rule, key, waiting=waiting, clears_at=clears_at, now=now, more=more)])
    return QuotaAlert.objects.get(pk=opened[0]) if opened else None
