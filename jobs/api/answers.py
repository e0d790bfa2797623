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


class JobsOfModel(BaseModel):
    kind: str
    service: str
    model: str | None
    jobs: int


class ForecastJobs(BaseModel):
    count: int = Field(description="That would be made.")
    duplicates: int = Field(description="Lines whose idempotency_key stands for the same work already.")
    by_batch: int = Field(description="Of the count: that would go by a batch of their provider, as they are.")
    by_model: list[JobsOfModel]


class ForecastTokens(BaseModel):
    known: int = Field(description="What is no guess: the input as it is estimated.")
    expected: int = Field(description="As calls of the kind and model have lately had on average; else the most.")
    reserved: int = Field(description="What limits keep free for them until their answers tell.")


class PriceRange(BaseModel):
    at_least: int = Field(description="With no output of the calls of whose like too little is known.")
    at_most: int | None = Field(description="With all that they can bring. Null: nothing bounds the output of some.")


class ForecastWay(BaseModel):
    price: int | None = Field(description="In millionths of the currency. Null: a price is missing.")
    price_range: PriceRange | None = Field(
        description="Between which it lies, where calls like these are too few yet. Null: `learned`, or no price."
    )
    finish_at: datetime | None = Field(description="When the last would have ended. Null: nobody knows, see `why`.")
    seconds: float | None = Field(description="Until then.")
    why: str = Field(description="Why nobody knows when; else empty.")


class UnpricedModel(BaseModel):
    service: str
    model: str
    via: Literal["live", "batch"]


class ShortBudget(BaseModel):
    budget: str
    user_id: UUID | None = Field(description="Whose it is; null: the project's.")
    policy: Literal["wait", "reject"] = Field(description="What becomes of the jobs beyond it.")
    needed: int | None = Field(description="What the work should cost, in millionths. Null: a price is missing.")
    left: int


class BindingLimit(BaseModel):
    limit: str
    key: str = Field(description="Under which the limit counts it: the quota's owner.")
    unit: str
    needed: float = Field(description="By the batch, in the unit.")
    ahead: float = Field(description="By the work before it.")
    seconds: float | None = Field(description="Until the last of it has passed. Null: it never does.")
    share: float = Field(description="Of the whole time; 1: this limit sets the pace.")


class Rejections(BaseModel):
    count: int
    jobs: list[RefusedLine] = Field(description="The first 100.")


class ForecastAnswer(BaseModel):
    accepted: bool = Field(description="False: its submission would be refused because of what is rejected.")
    jobs: ForecastJobs
    tokens: dict[str, ForecastTokens] = Field(description="By unit; empty where no job counts tokens.")
    learned: bool | None = Field(
        description="Whether all follow from earlier calls of the project. False: some are only bounds; null: none."
    )
    currency: str
    live: ForecastWay = Field(description="All of them live.")
    batch: ForecastWay = Field(description="By batches of their providers all that can go so; the rest live.")
    missing_prices: list[UnpricedModel]
    budgets: list[ShortBudget] = Field(description="Those that would not suffice, if all goes live.")
    binding: list[BindingLimit] = Field(description="The slowest limit first, at most ten.")
    rejected: Rejections


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


class Burn(BaseModel):
    window: str = Field(description="Such as `1 h`.")
    jobs: int = Field(description="Whose deadlines passed in it.")
    missed: int
    rate: float = Field(description="How many times as fast as it may the budget is used up.")


class ObjectiveInfo(BaseModel):
    """An objective as it stands now."""

    id: int
    name: str
    aim: Literal["start", "end", "succeed"]
    percent: float
    within_seconds: int | None
    kind: str = Field(description="Empty: jobs of every kind.")
    service: str
    window_days: int
    note: str
    words: str
    jobs: int = Field(description="Whose deadlines passed in the window.")
    missed: int
    attained_percent: float | None = Field(description="Null: there were no jobs.")
    budget_left_percent: float | None = Field(description="Of the misses it allows; below 0: it is broken.")
    burn: list[Burn]


class Objectives(BaseModel):
    objectives: list[ObjectiveInfo]


class SchedulePreview(BaseModel):
    next_due: list[datetime] = Field(description="The next five, without jitter.")


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
