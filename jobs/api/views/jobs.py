"""Jobs: submit, list, look at one."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, ClassVar
from uuid import UUID

from django.db.models import QuerySet
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from drf_spectacular.types import OpenApiTypes
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api import answers, examples, inputs
from jobs.api.filters import JobEventFilterSet, JobFilterSet
from jobs.api.log_pages import LogPages
from jobs.api.serializers.costs import money_answer, ways_answer
from jobs.api.serializers.events import EventSerializer
from jobs.api.serializers.jobs import JobDetailSerializer, JobSerializer, job_answer
from jobs.api.serializers.waiting import retry_after
from jobs.features.results.read import among_few, read_stored, whole_result
from jobs.features.results.reference import stored_in
from jobs.models import Job, JobEvent
from jobs.services.explain.event_log import log_cursor
from jobs.services.explain.snapshots import job_snapshot
from jobs.services.submit.spec import JobSpec, parse_spec
from jobs.services.submit.submit import submit_job
from queueops.core.values.masking import masked
from queueops.core.web.downloads import NO_SNIFFING, download
from queueops.rest.parsers import parse_object
from queueops.rest.schema import operation
from queueops.tenancy.callers.permissions import sees_secrets
from ratelimits.money.reports import spent_on_jobs

from .base import READ, SUBMIT, ApiListView, ApiView

# Filters that no index serves, and filters that bound the jobs among which the others look for theirs.
WITHOUT_INDEX = frozenset(
    {"kind", "service", "model", "last_error_code", "state", "priority", "held", "scheduled", "via"}
)
BOUNDS = frozenset({"user", "created_after", "created_before"})
NO_WAYS = {"prices": None, "provider_batch": None}


class JobList(ApiListView[Job]):
    needs: ClassVar = {"GET": READ, "POST": SUBMIT}
    for_users = for_anonymous = True
    serializer_class = JobSerializer
    filterset_class = JobFilterSet

    @property
    def finds_first(self) -> bool:
        return "batch" in self.request.query_params

    @property
    def looks_through(self) -> QuerySet[Job] | None:
        given = self.request.query_params
        if self.finds_first or "idempotency_key" in given or not WITHOUT_INDEX & given.keys():
            return None
        bounds = {name: given[name] for name in BOUNDS & given.keys()}
        every: QuerySet[Job] = JobFilterSet(bounds, queryset=self.own_rows(Job.objects.all())).qs
        return every

    @operation(
        "List jobs, newest first",
        operation_id="jobs_list",
        answer=JobSerializer(many=True),
        example=examples.JOB,
        description="Without payloads and results. Commas separate choices: `state=failed,cancelled`.",
    )
    def get(self, request: Request) -> Response:
        return self.listed(self.own_rows(Job.objects.all()).defer("payload", "result"))

    @operation(
        "Submit a job",
        operation_id="jobs_submit",
        body=JobSpec,
        body_example=examples.SPEC,
        answer=answers.Submitted,
        status=201,
        other_answers={200: answers.Submitted},
        example=examples.SUBMITTED,
        answers_once=True,
        description=(
            "201 once the job is stored durably; 200 when its `idempotency_key` was seen before with the same work, or "
            "a job with its `unique_key` has not ended: `outcome` says which."
        ),
    )
    def post(self, request: Request) -> Response:
        spec = parse_spec(parse_object(self.raw), written=self.raw)

        def submit() -> tuple[int, dict[str, Any]]:
            job = submit_job(
                spec, project_id=self.caller.project_id, actor=self.caller.actor, only_user=self.caller.user_id
            )
            return (201 if job.created else 200), {**asdict(job), "url": f"/api/v1/jobs/{job.id}/"}

        response = self.answer(submit)
        response["Location"] = response.data["url"]
        return response


class JobDetail(ApiView):
    needs: ClassVar = {"GET": READ}
    for_users = for_anonymous = True

    @operation(
        "Look at a job",
        operation_id="jobs_get",
        answer=JobDetailSerializer,
        example=examples.JOB_DETAIL,
        query=inputs.WaitInput,  # the web process waits, see dashboards/live/long_polls.py
        description="While it has not ended, Retry-After says when asking again is worth while.",
    )
    def get(self, request: Request, pk: UUID, query: inputs.WaitInput) -> Response:
        cursor = log_cursor()
        snapshot = job_snapshot(self.own(Job.objects.all(), pk))
        if self.caller.is_anonymous:  # costs are not for everyone
            told = money_answer(None) | NO_WAYS
        else:
            told = money_answer(spent_on_jobs([pk]).get(pk)) | ways_answer(snapshot.job)
        answer = job_answer(snapshot, cursor=cursor) | told
        return Response(answer, headers=retry_after(snapshot.recheck_after_seconds))


class JobResult(ApiView):
    needs: ClassVar = {"GET": READ}
    for_users = for_anonymous = True

    @operation(
        "Get a job's result alone",
        operation_id="jobs_result",
        answer=OpenApiTypes.ANY,
        example={"status": 200},
        description=(
            "As JSON, however large; null while there is none. 410 `result_missing`: the result store has it "
            "no more. 503 `store_failed`: the store does not answer."
        ),
    )
    def get(self, request: Request, pk: UUID) -> HttpResponseBase:
        job = self.own(Job.objects.only("id", "project_id", "result"), pk)
        stored = stored_in(job.result)
        if job.result is None:
            return HttpResponse("null", content_type="application/json")  # DRF would write nothing for None
        if stored is None:
            return Response(job.result)
        with among_few():
            if not sees_secrets(self.caller.actor):
                text = json.dumps(masked(whole_result(job)), ensure_ascii=False)
                return HttpResponse(text, content_type="application/json", headers=NO_SNIFFING)
            pieces = read_stored(stored)
        return download(request._request, pieces, "application/json")  # noqa: SLF001 - DRF has no public name


class JobEvents(ApiListView[JobEvent]):
    needs: ClassVar = {"GET": READ}
    for_users = for_anonymous = True
    serializer_class = EventSerializer
    filterset_class = JobEventFilterSet
    pagination_class = LogPages

    @operation(
        "List what happened to a job, newest first",
        operation_id="jobs_events",
        errors=[410],
        answer=EventSerializer(many=True),
        example=examples.EVENT,
    )
    def get(self, request: Request, pk: UUID) -> Response:
        job = self.own(Job.objects.only("id"), pk)
        return self.listed(self.own_rows(JobEvent.objects.filter(job_id=job.pk)))
