"""Watches whether the collector of the audit trail takes entries."""

from __future__ import annotations

from django.conf import settings

from queueops.audit.stream import standstill
from ratelimits.alerts.alerts import Opening, reconcile
from ratelimits.models import QuotaAlert

UNSETTLED = "it was not refused: a transaction stays open, or nobody sends"


def watch_audit() -> None:
    """Alert about a collector that takes nothing though entries wait, until it takes one or no collector is set."""
    target, found = settings.QUEUEOPS.audit_stream, []
    stands = standstill(target) if target else None
    if stands is not None and stands.seconds > settings.QUEUEOPS.alert_audit_minutes * 60:
        minutes = f"{stands.seconds / 60:,.0f} min"
        message = f"{target} has taken nothing of the audit trail for {minutes}: {stands.fault or UNSETTLED}"
        figures = {"seconds": round(stands.seconds), "fault": stands.fault}
        severity = QuotaAlert.Severity.WARNING
        found.append(Opening(QuotaAlert.Kind.AUDIT_STREAM, target, severity, message, figures))
    reconcile(QuotaAlert.Kind.AUDIT_STREAM, found)
