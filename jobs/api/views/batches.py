"""Batches: submit, list, look at one, steer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, ClassVar
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api import answers, examples, inputs
from jobs.api.batch_body import read_batch
from jobs.api.filters import BatchFilterSet, BatchJobFilterSet
from jobs.api.serializers.batches import BatchDetailSerializer, BatchSerializer, batch_answer, batch_detail_answer
from jobs.api.serializers.costs import money_answer
from jobs.api.serializers.jobs import JobSerializer, tell_tags
from jobs.api.serializers.waiting import BatchWaitingSerializer, retry_after
from jobs.features.forecast.reasons import holds_of_batch
from jobs.models import Batch, Job
from jobs.services.explain.event_log import log_cursor
from jobs.services.explain.snapshots import batch_snapshot, batch_snapshots
from jobs.services.submit.submit import submit_batch
from queueops.rest.parsers import JSON, NDJSON, JSONDocument, JSONLines
from queueops.rest.schema import operation
from ratelimits.money.reports import spent_on_batch

from .base import READ, SUBMIT, ApiListView, ApiView


class BatchList(ApiListView[Batch]):
    needs: ClassVar = {"GET": READ, "POST": SUBMIT}
    for_users = for_anonymous = True
    query: ClassVar = {"POST": inputs.BatchInput.model_fields}
    parser_classes = (JSONDocument, JSONLines)
    serializer_class = BatchSerializer
    filterset_class = BatchFilterSet

    @operation(
        "List batches, newest first",
        operation_id="batches_list",
        answer=BatchSerializer(many=True),
        example=examples.BATCH_ROW,
    )
    def get(self, request: Request) -> Response:
        return self.listed(self.own_rows(Batch.objects.all()))

    def shown(self, page: list[Batch]) -> list[dict[str, Any]]:
        tell_tags(page)
        return [batch_answer(snapshot) for snapshot in batch_snapshots(page).values()]

    @operation(
        "Submit a batch",
        operation_id="batches_submit",
        body={JSON: inputs.BatchDocument, NDJSON: {"type": "string"}},
        body_example=examples.BATCH,
        lines_example=examples.LINES,
        answer=answers.SubmittedBatch,
        status=201,
        example=examples.SUBMITTED_BATCH,
        answers_once=True,
        description=(
            "Up to 100,000 jobs: as one JSON document of at most 32 MB, or as `application/x-ndjson`, one "
            "job a line and the options `name`, `tags`, `partial`, `start_interval_seconds`, `after`, "
            "`on_failure`, `guard_percent`, `guard_first` and `on_finish` (its JSON) as query parameters. One job that "
            "is not valid rejects all, with the line and cause of each; with `partial` the valid ones are accepted. "
            "Bodies may be sent with `Content-Encoding: gzip`, here as everywhere; sizes are those of the inflated "
            "body."
        ),
    )
    def post(self, request: Request) -> Response:
        body = read_batch(request)
        return self.answer(lambda: self._submit(body.lines, body.options), digest=body.digest)

    def _submit(self, lines: Iterable[Any], given: inputs.BatchInput) -> tuple[int, dict[str, Any]]:
        receipt = submit_batch(
            lines,
            project_id=self.caller.project_id,
            actor=self.caller.actor,
            only_user=self.caller.user_id,
            **given.options(),
        )
        return 201, {**asdict(receipt), "url": f"/api/v1/batches/{receipt.id}/"}


class BatchDetail(ApiView):
    needs: ClassVar = {"GET": READ}
    for_users = for_anonymous = True

    @operation(
        "Look at a batch",
        operation_id="batches_get",
        answer=BatchDetailSerializer,
        example=examples.BATCH_DETAIL,
        query=inputs.WaitInput,  # the web process waits, see dashboards/live/long_polls.py
        description="While it has not ended, Retry-After says when asking again is worth while.",
    )
    def get(self, request: Request, pk: UUID, query: inputs.WaitInput) -> Response:
        cursor = log_cursor()
        snapshot = batch_snapshot(self.own(Batch.objects.all(), pk))
        spent = None if self.caller.is_anonymous else spent_on_batch(pk)
        answer = batch_detail_answer(snapshot, cursor=cursor) | money_answer(spent)
        return Response(answer, headers=retry_after(snapshot.recheck_after_seconds))


class BatchWaiting(ApiView):
    needs: ClassVar = {"GET": READ}
    for_users = for_anonymous = True

    @operation(
        "See what holds a batch",
        operation_id="batches_waiting",
        answer=BatchWaitingSerializer,
        example={"results": [examples.HELD_LANE]},
        description="Those with the most jobs first, at most five; none while nothing of it waits.",
    )
    def get(self, request: Request, pk: UUID) -> Response:
        batch = self.own(Batch.objects.only("id"), pk)
        return Response(BatchWaitingSerializer({"results": holds_of_batch(batch.pk)}).data)


class BatchJobs(ApiListView[Job]):
    needs: ClassVar = {"GET": READ}
    for_users = for_anonymous = True
    serializer_class = JobSerializer
    filterset_class = BatchJobFilterSet
    finds_first: ClassVar = True

    @operation(
        "List the jobs of a batch, newest first",
        operation_id="batches_jobs",
        answer=JobSerializer(many=True),
        example=examples.JOB,
    )
    def get(self, request: Request, pk: UUID) -> Response:
        batch = self.own(Batch.objects.only("id"), pk)
        rows = self.own_rows(Job.objects.filter(batch_id=batch.pk))
        return self.listed(rows.defer("payload", "result"))
