"""Pauses receivers that accept no messages any more, and opens alerts about them."""

from __future__ import annotations

from jobs.features.webhooks.models import SECRETS
from jobs.models import Webhook
from queueops.tenancy.receivers import MAX_PAUSED, Receiver, pause_silent
from queueops.tenancy.secrets.signing import WRITTEN_BY_ROTATION
from ratelimits.alerts.alerts import Opening, reconcile
from ratelimits.models import AlertRoute, QuotaAlert

SILENT = Receiver.Pause.SILENT


def watch_receivers() -> None:
    """
    Pause webhooks and alert routes that accepted nothing for three days. Alert about paused receivers, and about
    receivers that were switched off because they answered 410 Gone.

    The alert ends when somebody sends again or saves the receiver, or when one of its messages is accepted.
    """
    for model in (Webhook, AlertRoute):
        pause_silent(model)
    hooks = Webhook.objects.filter(paused_at__isnull=False).order_by("paused_at").defer(*SECRETS)
    routes = AlertRoute.objects.filter(paused_at__isnull=False).order_by("paused_at").defer(*WRITTEN_BY_ROTATION)
    found = [
        _opening(f"webhook/{one.pk}", f"The webhook {one.url} of {one.project_id}", one, one.project_id)
        for one in hooks[:MAX_PAUSED]
    ]
    found += [
        _opening(f"route/{one.pk}", f"The alert route {one.name}", one, one.project) for one in routes[:MAX_PAUSED]
    ]
    reconcile(QuotaAlert.Kind.RECEIVER, found)


def _opening(subject: str, name: str, row: Receiver, project: str) -> Opening:
    became = "is paused" if row.paused_because == SILENT else "is switched off"
    return Opening(
        QuotaAlert.Kind.RECEIVER,
        subject,
        QuotaAlert.Severity.WARNING,
        f"{name} {became}: {row.get_paused_because_display()}",
        {
            "paused_because": row.paused_because,
            "failing_since": row.failing_since.isoformat() if row.failing_since else None,
            "projects": [project] if project else [],
        },
    )
