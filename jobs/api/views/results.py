"""The results of a batch."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api import examples
from jobs.api.serializers.results import ResultSerializer
from jobs.models import Batch, Job
from jobs.services.explain.batch_results import FIRST, choose_results
from queueops.rest.pagination import NewestFirst, fitting
from queueops.rest.schema import operation
from queueops.tenancy.written_json import WrittenBytes

from .base import READ, ApiListView


class InTheirOrder(NewestFirst):
    """The jobs of the address's batch, the first submitted first."""

    def page(self, rows: QuerySet[Job], *, after: UUID | None, size: int, view: Any) -> tuple[list[Job], UUID | None]:
        chosen = choose_results(view.kwargs["pk"], after=after or FIRST, size=size)
        rows = rows.filter(pk__in=chosen.job_ids).order_by("pk")
        sizes = list(rows.values_list("pk", WrittenBytes("result")))
        count = fitting(size_of for _, size_of in sizes)
        if count == len(sizes):
            return list(rows), chosen.next_after
        last = sizes[count - 1][0]
        return list(rows.filter(pk__lte=last)), last


class BatchResults(ApiListView[Job]):
    needs: ClassVar = {"GET": READ}
    for_users = for_anonymous = True
    queryset = Job.objects.none()
    serializer_class = ResultSerializer
    pagination_class = InTheirOrder

    @operation(
        "List what became of a batch's jobs, in the order in which they were submitted",
        tag="batches",
        operation_id="batches_results",
        answer=ResultSerializer(many=True),
        example=examples.RESULT,
        description=(
            "With results, also of jobs that have not ended. A requeued job is left out: the one that took its place "
            "comes later and names it as its `origin`. A page may have fewer rows than `page_size`, even none, and "
            "be followed by others; the last one has no `next_cursor`. Results of more than QUEUEOPS_MAX_PAGE_MB "
            "together end a page early."
        ),
    )
    def get(self, request: Request, pk: UUID) -> Response:
        batch = self.own(Batch.objects.only("id"), pk)
        return self.listed(self.own_rows(Job.objects.filter(batch_id=batch.pk)).defer("payload"))
