"""The answers of the actions, for the OpenAPI document. The views write the same as plain dicts."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, Field

from jobs.states import CallType, JobState


class Submitted(BaseModel):
    id: UUID
    created: bool = Field(description="False: `id` is a job that existed already.")
    outcome: Literal["created", "duplicate", "pending", "replaced"] = Field(
        description="duplicate: a job with this idempotency_key and the same work existed. pending: one with this "
        "unique_key has not ended, and is left as it is. replaced: that one does this work now."
    )
    url: str


class RefusedLine(BaseModel):
    line: int = Field(description="Counted from 1.")
    code: str
    message: str
    fields: dict[str, list[str]]


class KnownJob(BaseModel):
    line: int = Field(description="Counted from 1.")
    outcome: Literal["duplicate", "pending", "replaced"] = Field(description="As of the submission of one job.")
    job: UUID = Field(description="That stands for its key.")
    batch: UUID | None = Field(description="Of that job. Null: it was submitted by itself.")


class SubmittedBatch(BaseModel):
    id: UUID
    accepted: int
    duplicates: int = Field(description="Jobs whose idempotency_key existed already.")
    pending: int = Field(description="Jobs not made because one with their unique_key has not ended.")
    replaced: int = Field(description="Of those pending: whose work that one does now.")
    error_count: int
    errors: list[RefusedLine] = Field(description="The first 1,000.")
    known: list[KnownJob] = Field(description="Lines that made no job, as their key is known: the first 1,000.")
    known_batches: list[UUID] = Field(description="The first 20 batches that have those jobs: their results are there.")
    url: str


class JobMoved(BaseModel):
    id: UUID
    state: JobState = Field(description="The state after the action.")


class Moved(BaseModel):
    moved: list[UUID]
    unmoved: list[UUID] = Field(description="Unknown in this project, or in a state this does not apply to.")


class Requeued(BaseModel):
    moved: dict[UUID, UUID] = Field(description="Dead letter -> its new job.")
    unmoved: list[UUID]


class RequeuedOne(BaseModel):
    id: UUID = Field(description="The new job.")
    origin: UUID = Field(description="The failed job.")
    url: str


class GoesOn(BaseModel):
    id: UUID
    goes_on: bool


class Paused(BaseModel):
    paused: bool
    changed_jobs: int = Field(description="Jobs that were held or released by this call.")


class Started(BaseModel):
    id: UUID = Field(description="The operation; it goes on in the background.")
    status: Literal["running", "done", "cancelled", "failed"]
    total: int = Field(description="Rows that matched when it began.")
    url: str


class HandlerInfo(BaseModel):
    kind: str
    service: str | None = Field(description="Null: it depends on the payload.")
    call_type: CallType
    timeout_seconds: float
    retry_policy: str
    idempotent: bool | None = Field(description="Null: it depends on the payload.")
    sends_effect_key: bool
    description: str
    payload_schema: dict[str, Any]


class Handlers(BaseModel):
    results: list[HandlerInfo]


class DeletedInfo(BaseModel):
    deleted: bool


class ProjectInfo(BaseModel):
    id: str
    name: str
    paused: bool
    counts: dict[JobState, int]
    scheduled: int = Field(description="Of those queued, how many wait for their time; at most 100,000.")
    scheduled_until: datetime | None = Field(
        description="When the last of them may begin; null: none waits for its time."
    )
    unfinished: int
    max_waiting_jobs: int = Field(description="Submissions beyond this many unfinished jobs are refused.")
    encrypted: bool = Field(description="Payloads and results are encrypted in the database.")
