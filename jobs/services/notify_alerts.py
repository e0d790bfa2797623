"""
Handing alerts over to those who want to be told: a job each, so that delivery is retried and can be looked at.

A route is told once that an alert of at least its severity opened, again when its severity rises, and of critical
alerts also when they are over. The job's idempotency key names alert, route, event and severity: nobody is told twice.
"""

from __future__ import annotations

from typing import Literal

from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now

from jobs.models import new_id
from queueops.core.notify import Channel, notify
from queueops.tenancy.models import Project
from ratelimits.models import AlertRoute, QuotaAlert

from .prepare import JobSpec, prepare_job
from .submit import insert_prepared

KIND = "queueops.alert"
PROJECT = "queueops-alerts"  # whose jobs deliveries are; made at the first
SEVERITIES = [QuotaAlert.Severity.NOTICE, QuotaAlert.Severity.WARNING, QuotaAlert.Severity.CRITICAL]

Event = Literal["opened", "resolved", "test"]


@transaction.atomic
def send_unsent(most: int) -> int:
    """
    Submit a delivery job for each route that wants an alert not sent yet, and mark the alert in the same transaction.

    Returns:
        How many jobs were submitted. At most `most` alerts are looked at; the rest is for the next call.
    """
    unsent = list(
        QuotaAlert.objects.filter(notified_at=None)
        .order_by("pk")
        .select_for_update(skip_locked=True, of=("self",))[:most]
    )
    if not unsent:
        return 0
    routes = list(AlertRoute.objects.filter(enabled=True))
    submitted = 0
    for alert in unsent:
        event: Event = "resolved" if alert.resolved_at else "opened"
        wanted = [route for route in routes if wants(route, alert)]
        submitted += sum(_submit(route, alert, event) for route in wanted)
    QuotaAlert.objects.filter(pk__in=[alert.pk for alert in unsent]).update(notified_at=Now())
    if submitted:
        notify(Channel.READY)
    return submitted


@transaction.atomic
def send_test(route: AlertRoute) -> None:
    """Submit a message to one route that says it is a test."""
    _submit(route, None, "test")
    notify(Channel.READY)


def wants(route: AlertRoute, alert: QuotaAlert) -> bool:
    return SEVERITIES.index(QuotaAlert.Severity(alert.severity)) >= SEVERITIES.index(
        QuotaAlert.Severity(route.least_severity)
    )


def service_of(route: AlertRoute) -> str:
    """Each route is a service of its own: one whose receiver is out must not hold up the others."""
    return f"alerts-{route.pk}"


def can_send_email() -> bool:
    return bool(settings.QUEUEOPS.email_url)


def _submit(route: AlertRoute, alert: QuotaAlert | None, event: Event) -> bool:
    key = f"{event}:{alert.pk}:{route.pk}:{alert.severity}" if alert else f"test:{new_id()}"
    payload = {"route": route.pk, "service": service_of(route), "alert": alert.pk if alert else None, "event": event}
    Project.objects.get_or_create(pk=PROJECT, defaults={"name": "Delivery of alerts"})
    job = prepare_job(
        JobSpec(kind=KIND, payload=payload, priority="urgent", idempotency_key=key), effect_key=f"alert:{key}"
    )
    return bool(insert_prepared([job], project_id=PROJECT, actor="system"))
