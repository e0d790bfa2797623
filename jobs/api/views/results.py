"""The results of a batch, in pages and as one file."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from django.db.models import QuerySet
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api import examples, inputs
from jobs.api.serializers.results import ResultSerializer
from jobs.models import Batch, Job
from jobs.services.explain.batch_results import FIRST, choose_results
from jobs.services.explain.batch_table import CONTENT_TYPES, Table, write_table
from queueops.core.values.masking import masked
from queueops.core.web.downloads import download, pieces_of
from queueops.rest.pagination import NewestFirst, fitting
from queueops.rest.schema import operation
from queueops.tenancy.callers.permissions import sees_secrets
from queueops.tenancy.secrets.written_json import WrittenBytes

from .base import READ, ApiListView, ApiView


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
    serializer_class = ResultSerializer
    pagination_class = InTheirOrder

    @operation(
        "List what became of a batch's jobs, in the order in which they were submitted",
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


class BatchTable(ApiView):
    needs: ClassVar = {"GET": READ}
    for_users = for_anonymous = True

    @operation(
        "Download what became of a batch's jobs as one file",
        operation_id="batches_table",
        answer=OpenApiTypes.ANY,
        other_answers=dict.fromkeys([(200, "text/csv"), (200, "application/x-ndjson")], OpenApiTypes.STR),
        example=[{"idempotency_key": "row-1", "state": "completed", "text": "fine"}],
        errors=[422],
        query=inputs.TableInput,
        description=(
            "A row a job, in the order of submission: `idempotency_key`, `id`, `state`, `last_error_code`, "
            "`cost_money`, and `columns` of the results or the whole `result`; with `with_input` what went in stands "
            "before it, in CSV a column a member, such as `payload.url`. CSV has other values than texts as "
            "JSON. A text that a spreadsheet would carry out has an apostrophe before it. "
            "The file is sent once it is complete."
        ),
    )
    def get(self, request: Request, pk: UUID, query: inputs.TableInput) -> HttpResponseBase:
        self.own(Batch.objects.only("id"), pk)
        table = Table(
            query.format,
            query.columns,
            query.with_input,
            with_costs=not self.caller.is_anonymous,
            **({} if sees_secrets(self.caller.actor) else {"shown": masked}),
        )
        file = write_table(self.own_rows(Job.objects.filter(batch_id=pk)), pk, table)
        name = f"batch-{str(pk)[-12:]}.{query.format}"
        return download(request._request, pieces_of(file), CONTENT_TYPES[query.format], name)  # noqa: SLF001 - DRF has no other
