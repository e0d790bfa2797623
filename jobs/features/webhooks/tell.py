"""
Tells projects that their batches and jobs have ended.

Webhooks hear of jobs in two steps. The executor that sums up the log notes which webhooks hear of which ended jobs. It
writes one row for each, in the transaction that moves the log's cursor. Messages are then made of the waiting rows,
many jobs in one. Few messages are under way for a webhook at once: jobs that end meanwhile wait as rows, and a webhook
that does not answer holds up no other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from uuid import UUID

from django.db import transaction
from django.db.models import Count, Max, OuterRef, Subquery

from jobs.features.webhooks.messages import KIND, KIND_OF_JOBS, make_message
from jobs.features.webhooks.models import SECRETS
from jobs.handlers.registry import all_handlers, same_names
from jobs.models import Batch, Webhook, WebhookDelivery, WebhookJob
from jobs.states import TERMINAL
from queueops.core.processes.isolate_failures import one_by_one
from queueops.core.sql import run_sql
from queueops.tenancy.models import ProjectMove

MAX_OPEN_MESSAGES = 4  # messages to one webhook that are under way
WEBHOOKS_AT_ONCE = 50
Event = WebhookDelivery.Event


def send_batch_webhooks(batch: Batch) -> int:
    """
    Submit one delivery job for each webhook that hears of the project's batches, in the caller's transaction.

    Returns:
        How many. A batch that ends again after a requeue is not announced twice to the same webhook.
    """
    sent = 0
    for webhook in Webhook.objects.filter(project=batch.project_id, enabled=True, hears_batches=True):
        if WebhookDelivery.objects.filter(webhook=webhook, batch=batch).exists():
            continue
        make_message(webhook, KIND, actor="system", batch=batch)
        sent += 1
    return sent


def most_hearers() -> int:
    """Return the largest number of webhooks that hear of jobs in one project."""
    hearing = Webhook.objects.filter(enabled=True, hears_jobs=True)
    return hearing.values("project").annotate(count=Count("pk")).aggregate(most=Max("count"))["most"] or 0


def note_ended_jobs(after: int, upto: int) -> int:
    """
    Note for webhooks the jobs that ended in a part of the log, in the transaction that takes the part.

    Returns:
        How many jobs were noted, once for each webhook that hears of them.
    """
    if not Webhook.objects.filter(enabled=True, hears_jobs=True).exists():
        return 0
    internal = [handler.kind for handler in all_handlers() if handler.internal]
    same = same_names()
    names = {"names": [name for name, _ in same], "others": [other for _, other in same]}
    [(noted,)] = run_sql("jobs", "note_ended_jobs", {"after": after, "upto": upto, "internal": internal, **names})
    return int(noted)


class WebhooksDuty:
    """
    Serves webhooks in turns: first webhooks that had no turn yet, then those whose last turn is longest ago.

    Between equals, the webhook whose jobs wait longest comes first. If the age of jobs alone decided, one project's
    fifty busy or silent webhooks would have every turn.
    """

    def __init__(self) -> None:
        self._served: dict[UUID, int] = {}  # by webhook, the number of its last turn
        self._turn = 0

    def do(self) -> int:
        """
        Make messages of the ended jobs that wait.

        For house-keeping, each second; not to be called inside a transaction.

        Returns:
            How many webhooks were looked at.
        """
        ids = sorted(_ready_webhooks(), key=lambda one: self._served.get(one, 0))[:WEBHOOKS_AT_ONCE]
        self._turn += 1
        self._served |= dict.fromkeys(ids, self._turn)
        one_by_one(ids, _send_waiting, what="the messages of the webhook")
        return len(ids)


def _ready_webhooks() -> list[UUID]:
    """Return the webhooks that have room for a message, first those whose jobs wait longest."""
    waiting = WebhookJob.objects.filter(delivery_id=None)
    if not waiting.exists():
        return []
    under_way = WebhookDelivery.objects.filter(is_open=True)
    under_way.filter(job__status__in=sorted(TERMINAL)).update(is_open=False)
    # The rows of a project that has moved wait: the other installation has told of them, or will.
    hooks = Webhook.objects.filter(enabled=True, paused_at=None, project__move=ProjectMove.NONE)
    first = waiting.filter(webhook=OuterRef("pk")).order_by("id").values("id")[:1]
    counts = Counter(under_way.values_list("webhook_id", flat=True))
    full = [webhook for webhook, count in counts.items() if count >= MAX_OPEN_MESSAGES]
    ready = hooks.exclude(pk__in=full).annotate(first=Subquery(first)).filter(first__isnull=False).order_by("first")
    return list(ready.values_list("pk", flat=True))


@transaction.atomic(durable=True)
def _send_waiting(webhook_id: UUID) -> None:
    # Another process that makes messages of these rows waits here. Noting jobs does not wait: it locks the key alone.
    rows = Webhook.objects.select_for_update(no_key=True).defer(*SECRETS)
    webhook = rows.filter(pk=webhook_id, enabled=True, paused_at=None).first()
    if webhook is None:
        return
    room = MAX_OPEN_MESSAGES - WebhookDelivery.objects.filter(webhook=webhook, is_open=True).count()
    if room <= 0:
        return
    waiting = WebhookJob.objects.filter(webhook=webhook, delivery_id=None).order_by("id")
    ids = list(waiting.values_list("pk", flat=True)[: room * webhook.most_jobs])
    for begin in range(0, len(ids), webhook.most_jobs):
        _make_message_of_jobs(webhook, ids[begin : begin + webhook.most_jobs])


def _make_message_of_jobs(webhook: Webhook, ids: Sequence[int]) -> None:
    made = make_message(webhook, KIND_OF_JOBS, actor="system", event=Event.JOBS, jobs_told=len(ids), is_open=True)
    WebhookJob.objects.filter(pk__in=ids).update(delivery_id=made.pk)
