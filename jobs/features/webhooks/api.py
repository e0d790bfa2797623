"""Webhooks: the addresses where the project is told that batches and jobs ended."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, ClassVar
from uuid import UUID

import django_filters
from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api import inputs
from jobs.api.filters import CreatedFilterSet, TimeOrderedFilterSet
from jobs.api.views.base import ApiListView, ApiView
from jobs.features.webhooks import webhooks
from jobs.features.webhooks.errors import BadWebhook
from jobs.features.webhooks.examples import (
    CHANGED_SECRET,
    MADE_WEBHOOK,
    NEW_WEBHOOK,
    WEBHOOK,
    WEBHOOK_DELIVERY,
    WEBHOOK_JOB,
)
from jobs.features.webhooks.inputs import ChangeWebhook, NewSecret, NewWebhook, SendAgain
from jobs.features.webhooks.models import SECRETS
from jobs.features.webhooks.send_again import failed_messages, send_webhook_again
from jobs.features.webhooks.serializers import (
    SentAgainSerializer,
    WebhookDeliverySerializer,
    WebhookJobSerializer,
    WebhookSerializer,
    WebhookWithSecretSerializer,
)
from jobs.models import Webhook, WebhookDelivery, WebhookJob
from jobs.states import JobState
from queueops.rest.filtering import ChoicesFilter, TruthFilter
from queueops.rest.schema import operation
from queueops.tenancy.callers.permissions import Need
from queueops.tenancy.models import Scope

READ_WEBHOOKS = Need(Scope.READ, "jobs.view_webhook")
ADD_WEBHOOKS = Need(Scope.OPERATE, "jobs.add_webhook")
CHANGE_WEBHOOKS = Need(Scope.OPERATE, "jobs.change_webhook")


class WebhookFilterSet(TimeOrderedFilterSet):
    enabled = TruthFilter()
    hears_jobs = TruthFilter()


class WebhookDeliveryFilterSet(TimeOrderedFilterSet):
    event = ChoicesFilter(choices=WebhookDelivery.Event.choices)
    state = ChoicesFilter(field_name="job__status", choices=JobState.choices)


class WebhookJobFilterSet(CreatedFilterSet):
    job = django_filters.UUIDFilter(field_name="job_id")
    waits = TruthFilter(field_name="delivery_id", lookup_expr="isnull")


def _rows() -> QuerySet[Webhook]:
    return Webhook.objects.defer(*SECRETS)


def _own(view: ApiView, pk: UUID) -> Webhook:
    return view.own(_rows(), pk)


def _saved(view: ApiView, pk: UUID | None, given: NewWebhook | ChangeWebhook) -> tuple[Webhook, str]:
    """
    Raises:
        BadWebhook: With the paths in the body that was sent.
    """
    try:
        return webhooks.save_webhook(pk, given.figures(), **view.audited(given.reason))
    except BadWebhook as error:
        names = {**webhooks.HEARS, **{name: f"jobs.{name}" for name in webhooks.OF_JOBS}}
        raise BadWebhook(fields={names.get(name, name): faults for name, faults in error.fields.items()}) from None


def _told_once(view: ApiView, status: int, act: Callable[[], tuple[Webhook, str]]) -> Response:
    """Answer with a webhook and its secret, which the repetition of the answer by Idempotency-Key leaves out."""
    secrets = []

    def effect() -> tuple[int, dict[str, Any]]:
        row, secret = act()
        secrets.append(secret)
        return status, {**WebhookSerializer(row).data, "secret": None}

    response = view.answer(effect)
    if secrets:  # after the answer was stored: the stored one keeps no secret
        response.data = {**response.data, "secret": secrets[0]}
    return response


class WebhookList(ApiListView[Webhook]):
    needs: ClassVar = {"GET": READ_WEBHOOKS, "POST": ADD_WEBHOOKS}
    serializer_class = WebhookSerializer
    filterset_class = WebhookFilterSet

    @operation(
        "List webhooks, newest first",
        operation_id="webhooks_list",
        answer=WebhookSerializer(many=True),
        example=WEBHOOK,
    )
    def get(self, request: Request) -> Response:
        return self.listed(self.own_rows(_rows()))

    @operation(
        "Create a webhook",
        operation_id="webhooks_create",
        body=NewWebhook,
        body_example=NEW_WEBHOOK,
        answer=WebhookWithSecretSerializer,
        status=201,
        example=MADE_WEBHOOK,
        answers_once=True,
        description="`jobs` is a filter: a job is told that fits all that it names; `{}` is every job. The `secret` "
        "with which messages are signed is in this answer alone, and not in its repetition by Idempotency-Key.",
    )
    def post(self, request: Request, body: NewWebhook) -> Response:
        return _told_once(self, 201, lambda: _saved(self, None, body))


class WebhookDetail(ApiView):
    needs: ClassVar = {"GET": READ_WEBHOOKS, "PATCH": CHANGE_WEBHOOKS}

    @operation(
        "Look at a webhook",
        operation_id="webhooks_get",
        answer=WebhookSerializer,
        example=WEBHOOK,
    )
    def get(self, request: Request, pk: UUID) -> Response:
        return Response(WebhookSerializer(_own(self, pk)).data)

    @operation(
        "Change a webhook",
        operation_id="webhooks_change",
        body=ChangeWebhook,
        body_example={"jobs": {"outcomes": ["failed"]}, "reason": "they only mend what fails"},
        answer=WebhookSerializer,
        example=WEBHOOK,
        answers_once=True,
        description="A field that is left out stays as it is; a filter that is given replaces the whole one, and "
        "`null` ends it. It counts for jobs that end from then on, within seconds. A webhook is not deleted: switch it"
        " off.",
    )
    def patch(self, request: Request, pk: UUID, body: ChangeWebhook) -> Response:
        _own(self, pk)
        return self.answer(lambda: (200, dict(WebhookSerializer(_saved(self, pk, body)[0]).data)))


class ChangeWebhookSecret(ApiView):
    needs: ClassVar = {"POST": CHANGE_WEBHOOKS}

    @operation(
        "Change the secret of a webhook",
        operation_id="webhooks_change_secret",
        body=NewSecret,
        body_example={"overlap_seconds": 3600, "reason": "somebody left"},
        answer=WebhookWithSecretSerializer,
        example=CHANGED_SECRET,
        errors=[409],
        answers_once=True,
        description="Until `two_signatures_until` the header `webhook-signature` has two signatures, that of the new "
        "secret first. Meanwhile another change is refused (`secret_changing`), unless `overlap_seconds` is 0. The "
        "`secret` is in this answer alone, and not in its repetition by Idempotency-Key.",
    )
    def post(self, request: Request, pk: UUID, body: NewSecret) -> Response:
        _own(self, pk)
        overlap = timedelta(seconds=body.overlap_seconds)
        return _told_once(self, 200, lambda: webhooks.change_secret(pk, overlap=overlap, **self.audited(body.reason)))


class TestWebhook(ApiView):
    needs: ClassVar = {"POST": CHANGE_WEBHOOKS}

    @operation(
        "Send a test to a webhook",
        operation_id="webhooks_test",
        body=inputs.WithReason,
        body_example={"reason": "the receiver is new"},
        answer=WebhookDeliverySerializer,
        status=201,
        example={**WEBHOOK_DELIVERY, "event": "webhook.test", "jobs_told": 0},
        answers_once=True,
        description="A signed message of the type `webhook.test`, also to one that is switched off. What became of it "
        "is in its deliveries.",
    )
    def post(self, request: Request, pk: UUID, body: inputs.WithReason) -> Response:
        _own(self, pk)

        def effect() -> tuple[int, dict[str, Any]]:
            made = webhooks.send_test(pk, **self.audited(body.reason))
            return 201, dict(WebhookDeliverySerializer(made).data)

        return self.answer(effect)


class SendWebhookAgain(ApiView):
    needs: ClassVar = {"POST": CHANGE_WEBHOOKS}

    @operation(
        "Send again what a webhook did not accept",
        operation_id="webhooks_send_again",
        body=SendAgain,
        body_example={"confirm": True, "reason": "their server is back"},
        answer=SentAgainSerializer,
        example={"sent": 12, "left": 0, "confirmed": True},
        errors=[409],
        answers_once=True,
        description="Ends its pause, and sends the messages again that failed for good, under their ids, the oldest "
        "first; 1,000 a call, `left` says how many are for the next. Without `confirm` nothing is sent, and `left` "
        "says how many would be. One that is switched off is refused (`receiver_is_off`).",
    )
    def post(self, request: Request, pk: UUID, body: SendAgain) -> Response:
        webhook = _own(self, pk)

        def effect() -> tuple[int, dict[str, Any]]:
            if not body.confirm:
                return 200, {"sent": 0, "left": failed_messages(webhook, body.since).count(), "confirmed": False}
            found = send_webhook_again(pk, since=body.since, **self.audited(body.reason))
            return 200, {"sent": found.sent, "left": found.left, "confirmed": True}

        return self.answer(effect)


class WebhookDeliveries(ApiListView[WebhookDelivery]):
    needs: ClassVar = {"GET": READ_WEBHOOKS}
    serializer_class = WebhookDeliverySerializer
    filterset_class = WebhookDeliveryFilterSet

    @operation(
        "List the messages to a webhook, newest first",
        operation_id="webhooks_deliveries",
        answer=WebhookDeliverySerializer(many=True),
        example=WEBHOOK_DELIVERY,
        description="Each is carried out by a job, and deleted with it. The `id` is what the receiver got as "
        "`webhook-id`, the same in each repetition.",
    )
    def get(self, request: Request, pk: UUID) -> Response:
        return self.listed(_own(self, pk).deliveries.select_related("job"))


class WebhookJobs(ApiListView[WebhookJob]):
    needs: ClassVar = {"GET": READ_WEBHOOKS}
    serializer_class = WebhookJobSerializer
    filterset_class = WebhookJobFilterSet

    @operation(
        "List the ended jobs that a webhook hears of, newest first",
        operation_id="webhooks_jobs",
        answer=WebhookJobSerializer(many=True),
        example=WEBHOOK_JOB,
        description="One for each ended job that fitted its filter, kept as long as the job. Without a `delivery_id` "
        "it waits for the next message.",
    )
    def get(self, request: Request, pk: UUID) -> Response:
        return self.listed(_own(self, pk).jobs.all())
