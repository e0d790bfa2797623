"""`queueops.webhook`: tells a project's webhook that a batch has ended."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from typing import Any
from uuid import UUID

from asgiref.sync import sync_to_async
from django.db import close_old_connections
from pydantic import BaseModel

from jobs.handlers.errors import ProviderError, unanswered
from jobs.handlers.http.payload import outbound_policy
from jobs.handlers.http.request import shared_client
from jobs.handlers.registry import Done, RunningJob, handler
from queueops.core.errors import QueueOpsError
from queueops.core.outbound.client import OutboundFailed
from queueops.core.outbound.policy import OutboundRefused
from queueops.tenancy.signing import open_signing_secret


class WebhookPayload(BaseModel, title="Delivery"):
    """`address` is what the outage breaker goes by: base URL and number of the webhook, nothing secret."""

    delivery_id: UUID
    address: str = ""


@dataclass(frozen=True, slots=True)
class WebhookMessage:
    """What is posted where. `timestamp`: seconds since the epoch."""

    id: str
    url: str
    secret: str
    timestamp: int
    body: bytes

    def headers(self) -> dict[str, str]:
        """
        The three headers of Standard Webhooks 1.0: id, timestamp and signature.

        The signature is `v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body`, keyed with the decoded secret.
        """
        key = base64.b64decode(self.secret.removeprefix("whsec_"))
        signed = f"{self.id}.{self.timestamp}.".encode() + self.body
        signature = base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
        return {
            "Content-Type": "application/json",
            "webhook-id": self.id,
            "webhook-timestamp": str(self.timestamp),
            "webhook-signature": f"v1,{signature}",
        }


@handler(
    kind="queueops.webhook",
    service="webhook",
    target=lambda delivery: delivery.address,  # one receiver that is out must not hold up the others
    payload=WebhookPayload,
    sends_effect_key=True,  # webhook-id is the delivery's id: receivers drop repetitions by it
    timeout=timedelta(seconds=30),
    retry="aggressive",
    internal=True,
)
async def deliver_webhook(job: RunningJob[WebhookPayload]) -> Done:
    """Post the end of a batch to one webhook; signed, and repeated until it is accepted with a 2xx."""
    message = await sync_to_async(_compose_in_thread, thread_sensitive=False)(job.payload.delivery_id)
    if message is None:
        return Done({"skipped": "the webhook was removed or disabled"})
    return Done({"status": await post_message(message)})


async def post_message(message: WebhookMessage) -> int:
    """
    Post one signed message to an address that installations may reach; returns the receiver's 2xx.

    Raises:
        ProviderError: It was refused, did not arrive, or was answered with anything else.
    """
    return await post(message.url, headers=message.headers(), body=message.body)


async def post(url: str, *, headers: Mapping[str, str], body: bytes) -> int:
    """Do what `post_message` does with what is signed already, or not at all."""
    try:
        response = await shared_client().send(
            "POST",
            url,
            policy=outbound_policy(),
            headers=headers,
            body=body,
            timeout_seconds=20,
            max_response_bytes=10_000,
            follow_redirects=False,
            reuse_connection=True,
        )
    except (OutboundRefused, OutboundFailed) as error:
        raise unanswered(error) from error
    if not HTTPStatus.OK <= response.status < HTTPStatus.MULTIPLE_CHOICES:
        raise ProviderError(
            response.status,
            f"the webhook answered {response.status}",
            code="webhook_refused",
            outcome="answered",
        )
    return response.status


def secret_of(row: Any) -> str:
    """
    The secret that a webhook's or an alert route's messages are signed with.

    Raises:
        ProviderError: No key opens it.
    """
    try:
        return open_signing_secret(row)
    except QueueOpsError as error:
        raise ProviderError(None, error.message, code=error.code, outcome="refused") from None


def _compose_in_thread(delivery_id: UUID) -> WebhookMessage | None:
    try:
        return compose(delivery_id)
    finally:
        close_old_connections()  # or the thread would keep one, and fail with it for ever once the server has restarted


def compose(delivery_id: UUID) -> WebhookMessage | None:
    """Build the message of one delivery from the batch as it is now; None: nobody wants it any more."""
    from django.utils import timezone

    from jobs.models import WebhookDelivery
    from jobs.services.explain.snapshots import batch_snapshot

    delivery = WebhookDelivery.objects.select_related("webhook", "batch").filter(pk=delivery_id).first()
    if delivery is None or not delivery.webhook.enabled:
        return None
    snapshot = batch_snapshot(delivery.batch)
    finished_at = delivery.batch.finished_at or timezone.now()
    content = {
        "type": "batch.finished",
        "timestamp": finished_at.isoformat(),
        "data": {
            "batch": str(delivery.batch.pk),
            "project": delivery.batch.project_id,
            "name": delivery.batch.name,
            "counts": snapshot.counts,
        },
    }
    return WebhookMessage(
        id=str(delivery_id),
        url=delivery.webhook.url,
        secret=secret_of(delivery.webhook),
        timestamp=int(timezone.now().timestamp()),
        body=json.dumps(content).encode(),
    )
