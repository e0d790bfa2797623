"""Messages to webhooks: each is a job of the webhook's project."""

from __future__ import annotations

from jobs.lanes import target_of
from jobs.models import Webhook, WebhookDelivery, new_id
from jobs.services.submit.prepare import prepare_job
from jobs.services.submit.spec import JobSpec
from jobs.services.submit.submit import insert_prepared

KIND = "queueops.webhook"
KIND_OF_JOBS = "queueops.webhook_jobs"  # its own kind: earlier releases have no handler, and leave its jobs alone


def make_message(webhook: Webhook, kind: str, *, actor: str, **fields: object) -> WebhookDelivery:
    """
    Submit the job of one message, in the caller's transaction.

    Args:
        fields: The delivery's fields.
    """
    delivery_id = new_id()
    spec = JobSpec(kind=kind, payload={"delivery_id": str(delivery_id), "address": _address(webhook)})
    job = prepare_job(spec, effect_key=str(delivery_id))
    insert_prepared([job], project_id=webhook.project_id, actor=actor)
    return WebhookDelivery.objects.create(id=delivery_id, webhook=webhook, job_id=job.id, **fields)


def _address(webhook: Webhook) -> str:
    try:
        base = target_of(webhook.url)
    except ValueError:  # an old address that would be refused now: an error here would be tried again for ever
        base = "unusable:"
    return f"{base}/{webhook.pk}"
