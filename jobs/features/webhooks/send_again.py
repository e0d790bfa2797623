"""Sends messages again that their receiver (a webhook or a route of alerts) did not accept."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from jobs.features.watches.notify_alerts import KIND as KIND_OF_ALERTS
from jobs.features.watches.notify_alerts import PROJECT, service_of
from jobs.features.webhooks.errors import ReceiverIsOff, UnknownWebhook
from jobs.features.webhooks.models import SECRETS
from jobs.models import DeadLetter, Webhook, WebhookDelivery
from jobs.services.operate.dead_letters import requeue_dead_letters
from queueops.audit import trail
from queueops.core.values.numbers import numbered
from queueops.core.values.reasons import clean_reason
from queueops.tenancy.receivers import Receiver
from queueops.tenancy.secrets.signing import WRITTEN_BY_ROTATION
from ratelimits.models import AlertRoute

MAX_SENT_AGAIN = 1_000  # messages of one call


@dataclass(frozen=True, slots=True)
class FailedMessages:
    """`count`: at most MAX_SENT_AGAIN are counted. `first_at`: when the oldest was given up."""

    count: int
    first_at: datetime | None = None

    @property
    def words(self) -> str:
        more = "at least " if self.count == MAX_SENT_AGAIN else ""
        return numbered(self.count, "message failed", "messages failed", before=more)


@dataclass(frozen=True, slots=True)
class SentAgain:
    """`left`: failed messages that are left for the next call."""

    sent: int
    left: int


def failed_messages(receiver: Webhook | AlertRoute, since: datetime | None = None) -> QuerySet[DeadLetter]:
    """
    The dead letters of a receiver's messages that nobody has requeued or discarded, the oldest first.

    Args:
        since: Only messages that were given up since.
    """
    if isinstance(receiver, Webhook):
        told = WebhookDelivery.objects.filter(webhook=receiver).exclude(event=WebhookDelivery.Event.TEST)
        letters = DeadLetter.objects.filter(job__in=told.values("job"))
    else:
        # Tests are left out: people send a new test if they want one.
        letters = DeadLetter.objects.filter(project=PROJECT, kind=KIND_OF_ALERTS, service=service_of(receiver))
        letters = letters.exclude(job__idempotency_key__startswith="test:")
    letters = letters.filter(resolution=None).order_by("created_at", "pk")
    return letters.filter(created_at__gte=since) if since else letters


def count_failed(receiver: Webhook | AlertRoute) -> FailedMessages:
    """Count the messages that are to be sent again."""
    letters = failed_messages(receiver)
    first = letters.values_list("created_at", flat=True).first()
    return FailedMessages(letters.order_by().values("pk")[:MAX_SENT_AGAIN].count(), first)


@transaction.atomic
def send_webhook_again(
    webhook_id: UUID, *, project_id: str, actor: str, since: datetime | None = None, reason: str = ""
) -> SentAgain:
    """
    End a webhook's pause, and requeue its messages that failed, under their ids and in the order in which they failed.

    Raises:
        UnknownWebhook
        ReceiverIsOff: It is switched off, and would be sent nothing.
        ProjectMoved, ProjectMoving
    """
    rows = Webhook.objects.select_for_update(no_key=True).defer(*SECRETS)
    webhook = rows.filter(pk=webhook_id, project=project_id).first()
    if webhook is None:
        raise UnknownWebhook(webhook_id=str(webhook_id))
    told = {"action": "send_webhook_again", "target": f"webhook {webhook.pk}", "project_id": project_id}
    return _send_again(webhook, since=since, actor=actor, reason=reason, told=told)


@transaction.atomic
def send_route_again(route_id: int, *, actor: str, since: datetime | None = None, reason: str = "") -> SentAgain:
    """
    End the pause of a route of alerts, and requeue its messages that failed, as `send_webhook_again` does.

    Raises:
        AlertRoute.DoesNotExist
        ReceiverIsOff
    """
    rows = AlertRoute.objects.select_for_update(no_key=True).defer(*WRITTEN_BY_ROTATION)
    route = rows.get(pk=route_id)
    told = {"action": "send_alerts_again", "target": f"alert route {route.pk}"}
    return _send_again(route, since=since, actor=actor, reason=reason, told=told)


def _send_again(
    receiver: Webhook | AlertRoute, *, since: datetime | None, actor: str, reason: str, told: dict[str, Any]
) -> SentAgain:
    if not receiver.enabled:
        raise ReceiverIsOff
    receiver.go_on()
    receiver.save(update_fields=[*Receiver.NOT_FAILING])
    letters = failed_messages(receiver, since)
    ids = list(letters.values_list("pk", flat=True)[:MAX_SENT_AGAIN])
    # The requeue's own audit entry tells which messages went; this one tells of the receiver.
    sent = len(requeue_dead_letters(ids, actor=actor, note=reason).moved)
    found = SentAgain(sent, letters.count())
    trail.record(actor=actor, **told, after={"sent": sent, "left": found.left}, reason=clean_reason(reason))
    return found
