"""Batches at providers: how far they are, and calling them back."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api import inputs
from jobs.api.filters import TimeOrderedFilterSet
from jobs.api.views.base import ApiListView, ApiView
from jobs.features.batch_lane.operate import cancel_provider_batches
from jobs.features.batch_lane.serializers import PROVIDER_BATCH, ProviderBatchSerializer
from jobs.models import ProviderBatch
from queueops.rest.filtering import ChoicesFilter
from queueops.rest.schema import operation
from queueops.tenancy.callers.permissions import Need
from queueops.tenancy.models import Scope

READ_PROVIDER_BATCHES = Need(Scope.READ, "jobs.view_providerbatch")
STEER_PROVIDER_BATCHES = Need(Scope.OPERATE, "jobs.steer_providerbatch")


class ProviderBatchFilterSet(TimeOrderedFilterSet):
    state = ChoicesFilter(choices=ProviderBatch.State.choices)

    class Meta:
        model = ProviderBatch
        fields = ("kind", "service", "model")


class ProviderBatchList(ApiListView[ProviderBatch]):
    needs: ClassVar = {"GET": READ_PROVIDER_BATCHES}
    serializer_class = ProviderBatchSerializer
    filterset_class = ProviderBatchFilterSet

    @operation(
        "List batches at providers, newest first",
        operation_id="provider_batches_list",
        answer=ProviderBatchSerializer(many=True),
        example=PROVIDER_BATCH,
    )
    def get(self, request: Request) -> Response:
        return self.listed(self.own_rows(ProviderBatch.objects.all()))


class ProviderBatchDetail(ApiView):
    needs: ClassVar = {"GET": READ_PROVIDER_BATCHES}

    @operation(
        "Look at a batch at a provider",
        operation_id="provider_batches_get",
        answer=ProviderBatchSerializer,
        example=PROVIDER_BATCH,
    )
    def get(self, request: Request, pk: UUID) -> Response:
        return Response(ProviderBatchSerializer(self.own(ProviderBatch.objects.all(), pk)).data)


class CancelProviderBatch(ApiView):
    needs: ClassVar = {"POST": STEER_PROVIDER_BATCHES}

    @operation(
        "Cancel a batch at its provider",
        operation_id="provider_batches_cancel",
        body=inputs.WithReason,
        body_example={"reason": "needed sooner"},
        answer=ProviderBatchSerializer,
        example=PROVIDER_BATCH,
        answers_once=True,
        description="What has been answered by then is kept; the other jobs go by another batch or live, as their "
        "deadlines allow. One that has ended is left alone.",
    )
    def post(self, request: Request, pk: UUID, body: inputs.WithReason) -> Response:
        found = self.own(ProviderBatch.objects.all(), pk)

        def effect() -> tuple[int, dict[str, Any]]:
            cancel_provider_batches([found.pk], actor=self.caller.actor, reason=body.reason)
            found.refresh_from_db()
            return 200, dict(ProviderBatchSerializer(found).data)

        return self.answer(effect)
