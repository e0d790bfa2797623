"""What the actions answer with, for the OpenAPI document. The views write the same as plain dicts."""

from __future__ import annotations

from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, Field

from jobs.states import CallType, JobState


class Submitted(BaseModel):
    id: UUID
    created: bool = Field(description="False: a job with this idempotency_key and the same work existed already.")
    url: str


class RefusedLine(BaseModel):
    line: int = Field(description="Counted from 1.")
    code: str
    message: str
    fields: dict[str, list[str]]


class SubmittedBatch(BaseModel):
    id: UUID
    accepted: int
    duplicates: int = Field(description="Jobs whose idempotency_key existed already.")
    error_count: int
    errors: list[RefusedLine] = Field(description="The first 1,000.")
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


class ProjectInfo(BaseModel):
    id: str
    name: str
    paused: bool
    counts: dict[JobState, int]
    unfinished: int
    max_waiting_jobs: int = Field(description="Submissions beyond this many unfinished jobs are refused.")
