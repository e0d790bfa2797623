"""Telling a project that its batch has ended."""

from __future__ import annotations

from jobs.lanes import target_of
from jobs.models import Batch, Webhook, WebhookDelivery, new_id
from jobs.services.submit.prepare import JobSpec, prepare_job
from jobs.services.submit.submit import insert_prepared

KIND = "queueops.webhook"


def send_batch_webhooks(batch: Batch) -> int:
    """
    Submit one delivery job for each enabled webhook of the batch's project, in the caller's transaction.

    Returns:
        How many. A batch that ends again after a requeue is not announced twice to the same webhook.
    """
    sent = 0
    for webhook in Webhook.objects.filter(project=batch.project_id, enabled=True):
        if WebhookDelivery.objects.filter(webhook=webhook, batch=batch).exists():
            continue
        delivery_id = new_id()
        address = f"{target_of(webhook.url)}/{webhook.pk}"
        spec = JobSpec(kind=KIND, payload={"delivery_id": str(delivery_id), "address": address})
        job = prepare_job(spec, effect_key=str(delivery_id))
        insert_prepared([job], project_id=batch.project_id, actor="system")
        WebhookDelivery.objects.create(id=delivery_id, webhook=webhook, batch=batch, job_id=job.id)
        sent += 1
    return sent
