"""Tools that read jobs and batches: what holds them back, how they ended, and what new ones would cost."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from django.conf import settings
from django.utils import timezone
from pydantic import Field, StringConstraints

from dashboards.services.find import SEARCHED
from dashboards.services.overview import MAX_EXECUTORS
from dashboards.services.project import read_project
from jobs.api import inputs
from jobs.api.views.base import READ, READ_DEAD_LETTERS, READ_OPERATIONS, SUBMIT
from jobs.api.views.batches import BatchDetail, BatchWaiting
from jobs.api.views.jobs import JobDetail, JobEvents
from jobs.api.views.log import EventList
from jobs.api.views.operations import OperationDetail
from jobs.api.views.projects import ProjectDetail
from jobs.features.forecast.api import ForecastBatch
from jobs.models import Executor
from jobs.services.explain.causes import causes_of
from jobs.services.upkeep.health import health_of
from queueops.assistant.asking import ask
from queueops.assistant.finding import batch_id, job_id, search
from queueops.assistant.showing import ToolAnswer
from queueops.assistant.tool import tool
from queueops.core.values.numbers import numbered
from queueops.rest.inputs import Input
from queueops.tenancy.callers.authentication import Caller

MAX_EVENTS_TOLD = 30
MAX_CAUSES_TOLD_AN_ASSISTANT = 20

Text = Annotated[str, StringConstraints(min_length=1, max_length=200, strip_whitespace=True)]


class OfJob(Input):
    job: Text = Field(description="Its id, in full or its last 8 characters as lists show it, or its idempotency key.")


class OfBatch(Input):
    batch: Text = Field(description="Its id, in full or its last 8 characters as lists show it, or its name.")


class Searched(Input):
    text: Text = Field(description="An id or its last 8 characters, a name, a tag, an idempotency key, a user.")


class OfCauses(Input):
    batch: Text | None = Field(default=None, description="Only of this batch: its id, its end, or its name.")


class OfOperation(Input):
    operation: UUID = Field(description="Its id, as the tool that started it told.")


@tool(READ)
def what_holds_the_project(caller: Caller, given: Any) -> ToolAnswer:
    """
    Start here: what holds the project's work back, the gravest first: nobody works, pauses, outages, failing services,
    limits, dead letters. With jobs by state, the pauses and what does not answer.
    """
    now = read_project(caller.project_id)
    data = {
        **ask(caller, ProjectDetail),
        "findings": [
            {"tone": one.tone, "text": one.text, "cause": one.cause, "about": one.page, "key": one.key,
             "begins_at": one.begins_at, "until": one.until}
            for one in now.findings
        ],
        "pauses": [
            {"paused": one.name, "scope": one.switch.scope, "key": one.switch.key, "reason": one.switch.reason,
             "since": one.switch.created_at, "waiting_jobs": one.waiting}
            for one in now.paused
        ],
        "does_not_answer": [
            {"name": one.name, "since": one.opened_at, "failures": one.failures, "next_probe_at": one.next_probe_at,
             "waiting_jobs": one.holds}
            for one in now.silent
        ],
    }  # fmt: skip
    return ToolAnswer(f"{numbered(len(now.findings), 'finding')}, the gravest first.", data)


@tool(READ, OfJob)
def why_does_a_job_wait(caller: Caller, given: OfJob) -> ToolAnswer:
    """Explain why one job does not run: the reasons in the order in which they must end, its place, a forecast."""
    job = ask(caller, JobDetail, pk=job_id(caller, given.job))
    waiting = job["waiting"]
    names = ("id", "kind", "service", "state", "batch", "held", "scheduled_at", "eta", "waiting", "waiting_for")
    told = {name: job[name] for name in names if name in job}
    if waiting is None:
        return ToolAnswer(f"Nothing holds it: the job is {job['state']}.", told)
    codes = ", ".join(reason["code"] for reason in waiting["reasons"])
    return ToolAnswer(f"The job waits: {codes}." if codes else "Nothing holds it: the next claim takes it.", told)


@tool(READ, OfJob)
def look_at_job(caller: Caller, given: OfJob) -> ToolAnswer:
    """One job with payload, result and error, secrets masked, and what happened to it, newest first."""
    pk = job_id(caller, given.job)
    job = ask(caller, JobDetail, pk=pk)
    events = ask(caller, JobEvents, query={"page_size": MAX_EVENTS_TOLD}, pk=pk)["results"]
    return ToolAnswer(f"Job {pk} is {job['state']}.", {"job": job, "events": events})


@tool(READ, OfBatch)
def look_at_batch(caller: Caller, given: OfBatch) -> ToolAnswer:
    """One batch: progress and its end, what holds its jobs, the causes of its failures, and its newest events."""
    pk = batch_id(caller, given.batch)
    batch = ask(caller, BatchDetail, pk=pk)
    data = {
        "batch": batch,
        "held_by": ask(caller, BatchWaiting, pk=pk)["results"],
        "causes": _causes({"project_id": caller.project_id, "batch_id": pk}),
        "events": ask(caller, EventList, query={"batch": pk, "page_size": MAX_EVENTS_TOLD})["results"],
    }
    is_so = batch["verdict"].replace("_", " ") + (f" by {batch['held_by']}" if batch["held_by"] else "")
    return ToolAnswer(f"Batch {pk}: {is_so}, {batch['progress']} % has ended.", data)


@tool(READ, Searched)
def search_everything(caller: Caller, given: Searched) -> ToolAnswer:
    """Search jobs, batches, tags, users, kinds and limits of the project by whatever has a name or an id."""
    found = search(caller, given.text)
    hits = {
        sort: [{"title": hit.title, "about": hit.about, "id": hit.key} for hit in hits]
        for sort, hits in found.hits.items()
    }
    count = sum(map(len, hits.values()))
    return ToolAnswer(f"{numbered(count, 'hit')}. Searched are: {'; '.join(SEARCHED[:5])}.", hits)


@tool(SUBMIT, inputs.BatchDocument)
def forecast(caller: Caller, given: inputs.BatchDocument) -> ToolAnswer:
    """
    Forecast a batch's cost and end, the limits and budgets in its way, and the jobs that would be refused. Takes what
    submitting one takes, and stores nothing.
    """
    told = ask(caller, ForecastBatch, "POST", body=given.model_dump(mode="json", exclude_unset=True))
    return ToolAnswer(
        f"A forecast, no promise, of {numbered(told['jobs']['count'], 'job')}. Nothing was stored.", told, masks=False
    )


@tool(READ_DEAD_LETTERS, OfCauses)
def causes_of_dead_letters(caller: Caller, given: OfCauses) -> ToolAnswer:
    """Open dead letters by what they have in common, the most frequent first, each with a sample and what to do."""
    narrowed: dict[str, Any] = {"project_id": caller.project_id}
    if given.batch is not None:
        narrowed["batch_id"] = batch_id(caller, given.batch)
    causes = _causes(narrowed)
    count = sum(cause["open"] for cause in causes)
    return ToolAnswer(f"{numbered(count, 'open dead letter')} of {numbered(len(causes), 'cause')}.", causes)


@tool(READ)
def executors(caller: Caller, given: Any) -> ToolAnswer:
    """List who carries out jobs: health, slots, what runs, which pool, how late their loops answer, kinds served."""
    found = list(Executor.objects.order_by("host", "pid")[:MAX_EXECUTORS])
    rows = [
        {
            "executor": f"…{str(one.pk)[-8:]}",
            "health": health_of(one),
            "role": one.role,
            "pool": one.pool or None,
            "slots": one.slots,
            "in_flight": one.in_flight,
            "loop_late_ms": round(one.loop_lag_ms),
            "loop_held_at": one.loop_held_at,
            "silent_seconds": round((timezone.now() - one.heartbeat_at).total_seconds()),
            "kinds": sorted(one.kinds),
        }
        for one in found
    ]
    sick = [row for row in rows if row["health"] == "silent"]
    lease = settings.QUEUEOPS.lease_seconds
    says = f"{numbered(len(rows), 'executor')}, {len(sick)} silent. Jobs of a silent one come back after {lease:g} s."
    return ToolAnswer(says, rows)


@tool(READ_OPERATIONS, OfOperation)
def look_at_operation(caller: Caller, given: OfOperation) -> ToolAnswer:
    """How far an operation in the background is, such as a requeue that was confirmed."""
    told = ask(caller, OperationDetail, pk=given.operation)
    return ToolAnswer(f"The operation is {told['status']}.", told)


def _causes(narrowed: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "fingerprint": cause.fingerprint,
            "open": cause.count,
            "kind": cause.newest.kind,
            "service": cause.newest.service,
            "error_code": cause.newest.error_code,
            "message": cause.newest.error_message,
            "what_to_do": cause.newest.remediation,
            "first_at": cause.first_at,
            "last_at": cause.newest.created_at,
            "newest_job": str(cause.newest.job_id),
        }
        for cause in causes_of(narrowed, most=MAX_CAUSES_TOLD_AN_ASSISTANT)
    ]
