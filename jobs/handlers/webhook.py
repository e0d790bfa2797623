"""`queueops.webhook` and `queueops.webhook_jobs`: tell a project's webhook that a batch, or jobs, have ended."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus
from typing import Any, TypeVar
from uuid import UUID

from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import close_old_connections
from pydantic import BaseModel

from jobs.handlers.errors import ProviderError, unanswered
from jobs.handlers.http.connections import shared_client
from jobs.handlers.http.payload import outbound_policy
from jobs.handlers.registry import Done, RunningJob, handler
from jobs.states import JobState
from queueops.core.errors import QueueOpsError
from queueops.core.outbound.client import OutboundFailed
from queueops.core.outbound.policy import OutboundRefused
from queueops.core.values.retry_after import told_delay
from queueops.tenancy.receivers import Receiver, note_accepted, note_refused
from queueops.tenancy.secrets.signing import open_signing_secret

T = TypeVar("T")
PAUSED, OFF = "receiver_paused", "receiver_is_off"
# A test is repeated only after statuses that may pass within a moment.
TEST_REPEATED = frozenset({408, 425, 429, *range(500, 600)})


class WebhookPayload(BaseModel, title="Delivery"):
    """`address` is what the outage breaker goes by: base URL and number of the webhook, nothing secret."""

    delivery_id: UUID
    address: str = ""


@dataclass(frozen=True, slots=True)
class WebhookMessage:
    """
    A message and its address. `timestamp`: seconds since the epoch. `webhook`: its row's id; None: for an alert.

    `former_secret` signs as well; empty: there is none.
    """

    id: str
    url: str
    secret: str
    timestamp: int
    body: bytes
    webhook: UUID | None = None
    is_test: bool = False
    former_secret: str = ""

    def headers(self) -> dict[str, str]:
        """
        The three headers of Standard Webhooks 1.0: id, timestamp and signature.

        A signature is `v1,` and the base64 of HMAC-SHA256 over `id.timestamp.body`, keyed with the decoded secret.
        Several signatures have spaces between them: a receiver takes the message if one of them is right.
        """
        signed = f"{self.id}.{self.timestamp}.".encode() + self.body
        secrets = filter(None, (self.secret, self.former_secret))
        return {
            "Content-Type": "application/json",
            "webhook-id": self.id,
            "webhook-timestamp": str(self.timestamp),
            "webhook-signature": " ".join(f"v1,{_signature(secret, signed)}" for secret in secrets),
        }


def _signature(secret: str, signed: bytes) -> str:
    key = base64.b64decode(secret.removeprefix("whsec_"))
    return base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()


@handler(
    kind="queueops.webhook",
    service="webhook",
    target=lambda delivery: delivery.address,  # one receiver that is out must not hold up the others
    payload=WebhookPayload,
    sends_effect_key=True,  # webhook-id is the delivery's id: receivers drop repetitions by it
    timeout=timedelta(seconds=30),
    retry="receiver",
    internal=True,
)
async def deliver_webhook(job: RunningJob[WebhookPayload]) -> Done:
    """Post the end of a batch to one webhook; signed, and repeated for three days until a 2xx accepts it."""
    return await _deliver(job.payload.delivery_id)


@handler(
    kind="queueops.webhook_jobs",
    service="webhook",
    target=lambda delivery: delivery.address,
    payload=WebhookPayload,
    sends_effect_key=True,
    timeout=timedelta(seconds=30),
    retry="receiver",
    internal=True,
)
async def deliver_ended_jobs(job: RunningJob[WebhookPayload]) -> Done:
    """Post one message about many ended jobs, or a test, to one webhook; signed, and repeated for three days, too."""
    return await _deliver(job.payload.delivery_id)


async def _deliver(delivery_id: UUID) -> Done:
    message = await in_thread(compose, delivery_id)
    if message is None:
        return Done(
            {"skipped": "the webhook was removed, or the jobs deleted or put back to wait until it is on again"}
        )
    try:
        status = await post_message(message)
    except ProviderError as error:
        await in_thread(_note_refused, message, error)
        if message.is_test:
            settle_at_once(error)
        raise
    await in_thread(_note_accepted, message)
    return Done({"status": status})


async def post_message(message: WebhookMessage) -> int:
    """
    Post one signed message to an address that the outbound policy allows; return the receiver's 2xx status.

    Raises:
        ProviderError: The address was refused, the message did not arrive, or the status is no 2xx.
    """
    return await post(message.url, headers=message.headers(), body=message.body)


async def post(url: str, *, headers: Mapping[str, str], body: bytes) -> int:
    """Post as `post_message` does, but with the caller's own headers, which may be signed or not."""
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
        # The status is enough. If an unreadable body counted as a failure, the message would be sent again.
        status = int(error.details.get("answered_status") or 0)
        if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
            return status
        raise unanswered(error) from error
    status = response.status
    if HTTPStatus.OK <= status < HTTPStatus.MULTIPLE_CHOICES:
        return status
    is_gone = status == HTTPStatus.GONE
    told = f"the receiver answered {status}"
    if HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        told += ": no redirect is followed, so give the address that it leads to"
    raise ProviderError(
        status,
        told,
        code="webhook_gone" if is_gone else "webhook_refused",
        retry_after=told_delay(response.headers),
        outcome="answered",
        repeat=not is_gone,  # a 404 during a deployment or a 401 during a change of secret will pass
    )


def settle_at_once(error: ProviderError) -> None:
    """Do not repeat a test that was refused: the person who tests a receiver must see the refusal at once."""
    if error.status is not None and error.status not in TEST_REPEATED:
        error.repeat = False


def secret_of(row: Any, *, column: str = "secret") -> str:
    """
    The secret that signs the messages of a webhook or of an alert route.

    Raises:
        ProviderError: No key decrypts it.
    """
    try:
        return open_signing_secret(row, column=column)
    except QueueOpsError as error:
        raise ProviderError(None, error.message, code=error.code, outcome="refused") from None


async def in_thread(function: Callable[..., T], *arguments: Any) -> T:
    """Call a function that uses the database, in a thread."""

    def run() -> T:
        try:
            return function(*arguments)
        finally:
            close_old_connections()  # otherwise the thread keeps a connection that fails after the server restarts

    return await sync_to_async(run, thread_sensitive=False)()


def refuse_paused(row: Receiver) -> None:
    """
    Raises:
        ProviderError: The receiver is switched off or paused. The message fails, so that it is among the messages to
            send again later.
    """
    # A skipped message would count as delivered, and nothing would tell of its batch or alert again.
    if not row.enabled:
        raise ProviderError(None, "its receiver is switched off", code=OFF, outcome="refused")
    if row.is_silent:
        told = "its receiver is paused: it accepted nothing for three days"
        raise ProviderError(None, told, code=PAUSED, outcome="refused")


def _note_accepted(message: WebhookMessage) -> None:
    from jobs.models import Webhook

    note_accepted(Webhook, message.webhook)


def _note_refused(message: WebhookMessage, error: ProviderError) -> None:
    from jobs.models import Webhook

    if not message.is_test:
        note_refused(Webhook, message.webhook, is_gone=error.status == HTTPStatus.GONE)


def compose(delivery_id: UUID) -> WebhookMessage | None:
    """
    Build the message of one delivery from the present state of its batch or jobs; None: the message is not wanted.

    If the webhook was switched off meanwhile, the delivery's jobs wait again, like jobs that are in no delivery yet.
    The message of a batch fails, for nothing else tells of its end.

    Raises:
        ProviderError: The receiver is switched off or paused, or no key decrypts the signing secret.
    """
    from django.utils import timezone

    from jobs.models import WebhookDelivery, WebhookJob

    delivery = WebhookDelivery.objects.select_related("webhook", "batch").filter(pk=delivery_id).first()
    if delivery is None:
        return None
    if not delivery.webhook.enabled and delivery.event == WebhookDelivery.Event.JOBS:
        WebhookJob.objects.filter(delivery_id=delivery_id).update(delivery_id=None)
        return None
    is_test = delivery.event == WebhookDelivery.Event.TEST
    if not is_test:
        refuse_paused(delivery.webhook)
    content = _COMPOSERS[delivery.event](delivery)
    if content is None:
        return None
    return WebhookMessage(
        id=str(delivery_id),
        url=delivery.webhook.url,
        secret=secret_of(delivery.webhook),
        timestamp=int(timezone.now().timestamp()),
        body=json.dumps({"type": delivery.event, **content}, ensure_ascii=False).encode(),
        webhook=delivery.webhook_id,
        is_test=is_test,
        former_secret=_former_secret_of(delivery.webhook),
    )


def _former_secret_of(webhook: Any) -> str:
    """Return the secret before the last change, while its overlap lasts; empty: it signs nothing any more."""
    from django.utils import timezone

    until = webhook.former_secret_until
    if until is None or until <= timezone.now() or webhook.former_secret is None:
        return ""
    return secret_of(webhook, column="former_secret")


def _of_batch(delivery: Any) -> dict[str, Any]:
    from django.utils import timezone

    from jobs.services.explain.snapshots import batch_snapshot

    finished_at = delivery.batch.finished_at or timezone.now()
    snapshot = batch_snapshot(delivery.batch)
    return {
        "timestamp": finished_at.isoformat(),
        "data": {
            "batch": str(delivery.batch.pk),
            "project": delivery.batch.project_id,
            "name": delivery.batch.name,
            "verdict": snapshot.verdict.value,
            "counts": snapshot.counts,
        },
    }


def _of_jobs(delivery: Any) -> dict[str, Any] | None:
    """
    Return the jobs in the order in which they ended; None: all of them are deleted.

    Payload, result and error text are left out: the links lead to them, for readers who may see them.
    """
    from jobs.models import Job, Tag, WebhookJob

    ids = list(WebhookJob.objects.filter(delivery_id=delivery.pk).order_by("id").values_list("job_id", flat=True))
    fields = ("kind", "batch_id", "user_id", "status", "last_error_code", "finished_at")
    found = Job.objects.only(*fields).in_bulk(ids)
    if not found:
        return None
    tags, project = Tag.objects.of(ids), delivery.webhook.project_id
    jobs = [_told(found[one], tags.get(one, [])) for one in ids if one in found]
    return {"timestamp": delivery.created_at.isoformat(), "data": {"project": project, "jobs": jobs}}


def _told(job: Any, tags: list[str]) -> dict[str, Any]:
    base = f"{settings.QUEUEOPS.public_url}/api/v1"
    failed = job.status == JobState.FAILED
    return {
        "job": str(job.pk),
        "kind": job.kind,
        "batch": str(job.batch_id) if job.batch_id else None,
        "user": str(job.user_id) if job.user_id else None,
        "tags": tags,
        "outcome": job.status,
        "error_code": job.last_error_code if failed else "",
        "ended_at": job.finished_at.isoformat(),
        "links": {
            "job": f"{base}/jobs/{job.pk}/",  # with its result
            "batch": f"{base}/batches/{job.batch_id}/" if job.batch_id else None,
        },
    }


def _settle_at_once(delivery: Any) -> dict[str, Any]:
    return {
        "timestamp": delivery.created_at.isoformat(),
        "data": {
            "project": delivery.webhook.project_id,
            "webhook": str(delivery.webhook.pk),
            "message": "This is a test. Nothing has ended.",
        },
    }


_COMPOSERS: dict[str, Callable[[Any], dict[str, Any] | None]] = {
    "batch.finished": _of_batch,
    "jobs.ended": _of_jobs,
    "webhook.test": _settle_at_once,
}
