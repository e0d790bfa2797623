"""Jobs: submit, list, look at one."""

from __future__ import annotations

from typing import Any, ClassVar
from uuid import UUID

from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api import answers, examples
from jobs.api.filters import JobEventFilterSet, JobFilterSet
from jobs.api.log_pages import LogPages
from jobs.api.serializers import (
    EventSerializer,
    JobDetailSerializer,
    JobSerializer,
    job_answer,
    money_answer,
    retry_after,
    ways_answer,
)
from jobs.models import Job, JobEvent
from jobs.services.explain.event_log import log_cursor
from jobs.services.explain.snapshots import job_snapshot
from jobs.services.submit.prepare import JobSpec, parse_spec
from jobs.services.submit.submit import submit_job
from queueops.rest.parsers import digest_of, parse_object, read_document
from queueops.rest.schema import operation
from ratelimits.services.money.reports import spent_on_jobs

from .base import READ, SUBMIT, ApiListView, ApiView

NO_WAYS = {"prices": None, "provider_batch": None}


class JobList(ApiListView[Job]):
    needs: ClassVar = {"GET": READ, "POST": SUBMIT}
    for_users = for_anonymous = True
    queryset = Job.objects.none()
    serializer_class = JobSerializer
    filterset_class = JobFilterSet

    @operation(
        "List jobs, newest first",
        tag="jobs",
        operation_id="jobs_list",
        answer=JobSerializer(many=True),
        example=examples.JOB,
        description="Without payloads and results. Commas separate choices: `state=failed,cancelled`.",
    )
    def get(self, request: Request) -> Response:
        return self.listed(self.own_rows(Job.objects.all()).defer("payload", "result"))

    @operation(
        "Submit a job",
        tag="jobs",
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
        raw = read_document(request)
        spec = parse_spec(parse_object(raw))

        def submit() -> tuple[int, dict[str, Any]]:
            job = submit_job(
                spec, project_id=self.caller.project_id, actor=self.caller.actor, only_user=self.caller.user_id
            )
            answer = {
                "id": str(job.id),
                "created": job.created,
                "outcome": job.outcome,
                "url": f"/api/v1/jobs/{job.id}/",
            }
            return (201 if job.created else 200), answer

        response = self.answer(submit, digest=lambda: digest_of(request, raw))
        response["Location"] = response.data["url"]
        return response


class JobDetail(ApiView):
    needs: ClassVar = {"GET": READ}
    for_users = for_anonymous = True

    @operation(
        "Look at a job",
        tag="jobs",
        operation_id="jobs_get",
        answer=JobDetailSerializer,
        example=examples.JOB_DETAIL,
        description="While it has not ended, Retry-After says when asking again is worth while.",
    )
    def get(self, request: Request, pk: UUID) -> Response:
        cursor = log_cursor()
        snapshot = job_snapshot(self.own(Job.objects.all(), pk))
        if self.caller.is_anonymous:  # what things cost is not for everyone
            told = money_answer(None) | NO_WAYS
        else:
            told = money_answer(spent_on_jobs([pk]).get(pk)) | ways_answer(snapshot.job)
        answer = job_answer(snapshot, cursor=cursor) | told
        return Response(answer, headers=retry_after(snapshot.recheck_after_seconds))


class JobEvents(ApiListView[JobEvent]):
    needs: ClassVar = {"GET": READ}
    for_users = for_anonymous = True
    queryset = JobEvent.objects.none()
    serializer_class = EventSerializer
    filterset_class = JobEventFilterSet
    pagination_class = LogPages

    @operation(
        "List what happened to a job, newest first",
        tag="jobs",
        operation_id="jobs_events",
        errors=[410],
        answer=EventSerializer(many=True),
        example=examples.EVENT,
    )
    def get(self, request: Request, pk: UUID) -> Response:
        job = self.own(Job.objects.only("id"), pk)
        return self.listed(self.own_rows(JobEvent.objects.filter(job_id=job.pk)))
