"""The bodies that the actions take. Unknown fields are refused."""

from __future__ import annotations

from datetime import time
from typing import Annotated, Any, Literal, Self
from uuid import UUID

from pydantic import BeforeValidator, ConfigDict, Field, StringConstraints, field_validator, model_validator
from pydantic_core import PydanticCustomError

from jobs.cron import MAX_CRON_LENGTH, MAX_JITTER_SECONDS, MAX_MISSED_FIRES, Missed
from jobs.features.schedules.schedules import MAX_JOBS_OF_A_SCHEDULE
from jobs.features.webhooks.models import MAX_JOBS_OF_A_MESSAGE
from jobs.models import OnFailure
from jobs.services.explain.snapshots import MAX_WAIT_SECONDS
from jobs.services.operate.bulk_outcome import CANARY_PERCENT, MAX_CANARIES, Canary
from jobs.services.submit.spec import MAX_DELAY_SECONDS, After, JobSpec, OnFailureOfThose
from jobs.states import Priority
from queueops.core.values.moments import Moment, MomentInUTC
from queueops.core.values.narrowing import Narrowing, SearchedText, not_null
from queueops.core.values.tags import Tags
from queueops.core.web.nul import NO_NUL
from queueops.rest.inputs import Input, as_changes
from queueops.tenancy.models import MAX_GUARDED
from ratelimits.services.tuning.concurrency_caps import MAX_CALLS_AT_ONCE

Reason = Annotated[str, StringConstraints(max_length=500)]
GivenReason = Annotated[str, StringConstraints(min_length=1, max_length=500, strip_whitespace=True, pattern=r"\S")]
DelaySeconds = Annotated[float, Field(strict=True, ge=0, le=MAX_DELAY_SECONDS)]
CRON = "Minute, hour, day of the month, month, day of the week, read as Debian's cron reads them."
PlaceInResult = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=NO_NUL)]
KindName = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=NO_NUL)]
JobOutcome = Literal["completed", "failed", "cancelled"]  # the ended states of jobs/states.py
Weekday = Annotated[int, Field(ge=0, le=6)]
Ids = Annotated[list[UUID], Field(min_length=1, description="At most 10,000.")]


def _separated(given: Any) -> Any:
    return tuple(given.split(",")) if isinstance(given, str) else given


def _truth(given: Any) -> Any:
    if given not in ("true", "false"):
        raise PydanticCustomError("truth", "true or false")
    return given == "true"


class WaitInput(Input):
    """How long an answer may take while the job or batch goes on."""

    wait: float = Field(default=0, ge=0, le=MAX_WAIT_SECONDS)


class TableInput(Input):
    """A batch's results as a file."""

    format: Literal["csv", "ndjson", "json"] = "csv"
    columns: Annotated[tuple[PlaceInResult, ...], BeforeValidator(_separated), Field(max_length=100)] = ()
    with_input: Annotated[bool, BeforeValidator(_truth)] = False


class BatchInput(Input):
    """Options of a batch; with NDJSON they are query parameters."""

    name: str = Field(default="", max_length=200)
    tags: Tags = Field(default=(), description="Of the batch alone. As a query parameter, separated by commas.")
    partial: bool = Field(default=False, description="Accept the valid jobs and report the others.")
    start_interval_seconds: float = Field(default=0, ge=0, le=86_400, description="Start the jobs this far apart.")
    after: After = ()
    on_failure: OnFailureOfThose = OnFailure.CANCEL
    on_finish: JobSpec | None = Field(
        default=None,
        description="A job to carry out once, when all of the batch has ended, without times and idempotency_key. "
        "As a query parameter, its JSON.",
    )
    guard_percent: int | None = Field(
        default=None,
        ge=0,
        le=100,
        description="The batch pauses itself when so many percent of its first `guard_first` jobs fail for good with "
        "one code. 0: never. By default as the project says: 20 percent, in batches of more than 200 jobs.",
    )
    guard_first: int | None = Field(
        default=None,
        ge=1,
        le=MAX_GUARDED,
        description="Until so many have ended, at most twice as many are let go. By default as the project says: 50.",
    )


class BatchDocument(BatchInput):
    # Any: the service validates each job and reports its line.
    jobs: list[Any] = Field(description="Each as in the submission of one job.")


class WithReason(Input):
    reason: Reason = ""


def _percent_with_its_canary(schema: dict[str, Any]) -> None:
    """Describe that the percentage comes with a number."""
    canary: dict[str, Any] = {"required": ["canary"], "properties": {"canary": {"type": "integer"}}}
    schema["dependentSchemas"] = {"canary_percent": canary}


class WithCanary(Input):
    model_config = ConfigDict(json_schema_extra=_percent_with_its_canary)

    canary: int | None = Field(
        default=None,
        ge=1,
        le=MAX_CANARIES,
        description="So many first. The rest follows once all their jobs have ended. Null: all at once.",
    )
    canary_percent: int = Field(
        default=CANARY_PERCENT,
        ge=1,
        le=100,
        description="The rest does not follow where so many percent of them failed with one code.",
    )

    @model_validator(mode="after")
    def with_its_size(self) -> Self:
        if self.canary is None and "canary_percent" in self.model_fields_set:
            raise PydanticCustomError("with_its_size", "canary_percent goes with canary: how many are to go first.")
        return self

    def figures(self, *names: str) -> dict[str, Any]:
        """Return the fields of these names, and the canary, as services take them."""
        canary = None if self.canary is None else Canary(self.canary, self.canary_percent)
        return {**{name: getattr(self, name) for name in names}, "canary": canary}


class ResumeBatchInput(WithReason, WithCanary):
    pass


class Reschedule(WithReason):
    delay_seconds: DelaySeconds = Field(description="From now. 0: run as soon as possible.")


class ScheduleFigures(WithReason):
    """When it fires, and what it submits then."""

    time_zone: str = Field(default="UTC", max_length=64, description="Whose clock it goes by, as `Europe/Berlin`.")
    missed: Missed = Field(
        default=Missed.ONCE,
        description="What becomes of fires that are more than a minute late, because no worker ran or the project was "
        "paused: skip, once (one for all of them) or all (each, the newest `most_missed`).",
    )
    most_missed: int = Field(default=10, ge=1, le=MAX_MISSED_FIRES)
    jitter_seconds: int = Field(
        default=0, ge=0, le=MAX_JITTER_SECONDS, description="Each fire is late by less than that."
    )
    ends_at: MomentInUTC | None = Field(default=None, description="It does not fire later.")

    def figures(self) -> dict[str, Any]:
        """The given values, by the names of the schedule's fields."""
        return self.model_dump(exclude_unset=True, exclude={"reason"})


Cron = Annotated[str, Field(max_length=MAX_CRON_LENGTH, description=CRON, examples=["30 2 * * MON-FRI"])]
Jobs = Annotated[
    list[dict[str, Any]],
    Field(
        min_length=1,
        max_length=MAX_JOBS_OF_A_SCHEDULE,
        description="Each as in the submission of one job, without times of its own and idempotency_key. One is "
        "submitted as a job, several as a batch of the schedule's name.",
    ),
]
ScheduleName = Annotated[
    str, Field(min_length=1, max_length=100, pattern=NO_NUL, description="Of its own in the project.")
]


class NewSchedule(ScheduleFigures):
    name: ScheduleName
    cron: Cron
    jobs: Jobs


class ChangeSchedule(ScheduleFigures):
    """Fields that are left out stay as they are."""

    model_config = ConfigDict(json_schema_extra=as_changes)

    name: ScheduleName = ""
    cron: Cron = ""
    jobs: Jobs = []


class SetAtOnce(WithReason):
    """Whose calls, and how many may be in flight."""

    at_most: Annotated[int, Field(strict=True, ge=1, le=MAX_CALLS_AT_ONCE)]
    kind: Annotated[str, StringConstraints(max_length=100)] = Field(
        default="", description="Of jobs of this kind alone. Empty: of every kind."
    )
    service: Annotated[str, StringConstraints(max_length=64)] = Field(
        default="", description="To this service alone. Empty: to every one."
    )
    each_user: bool = Field(
        strict=True, default=False, description="So many for each user; else for the project together."
    )


class WithGivenReason(Input):
    reason: GivenReason


class WindowFigures(Input):
    begins_at: MomentInUTC | None = Field(default=None, description="Once: from then.")
    ends_at: MomentInUTC | None = Field(default=None, description="Once: until then.")
    weekdays: list[Weekday] = Field(
        default=[], max_length=7, description="Weekly: the days on which it begins; 0 is Monday."
    )
    since: time | None = Field(default=None, description="Weekly: what the clock shows when it begins.")
    until: time | None = Field(
        default=None, description="Weekly: it ends at the next such time. The same as `since`: a whole day."
    )
    time_zone: str = Field(default="UTC", max_length=64, description="Weekly: whose clock, as `Europe/Berlin`.")
    reason: Reason = Field(default="", description="Shown wherever work waits for it.")


class NewWindow(WindowFigures):
    """Once, or every week."""


class ChangeWindow(WindowFigures):
    """Fields that are left out stay as they are."""

    model_config = ConfigDict(json_schema_extra=as_changes)

    def figures(self) -> dict[str, Any]:
        return self.model_dump(include=self.model_fields_set)


class EndedJobs(Input):
    """Jobs that fit all that is given; nothing given is every job."""

    kinds: list[KindName] = Field(default=[], description="One of these kinds.")
    tags: Tags = Field(default=(), description="All of these tags.")
    any_tag: Tags = Field(default=(), description="One of these tags, or several.")
    outcomes: list[JobOutcome] = Field(
        default=[], description="Ended so. `failed` is for good: each of them has a dead letter."
    )
    user_id: UUID | None = None
    batch_id: UUID | None = None


def _heard(figures: dict[str, Any]) -> dict[str, Any]:
    """The given values by the names of the webhook's fields; a given filter replaces the whole filter."""
    found = {name: value for name, value in figures.items() if name not in {"jobs", "batches", "reason"}}
    if "batches" in figures:
        found["hears_batches"] = figures["batches"]
    if "jobs" in figures:
        found["hears_jobs"] = figures["jobs"] is not None
        found |= figures["jobs"] or EndedJobs().model_dump()
    return found


class WebhookFigures(WithReason):
    """Where its messages go, and what they tell of."""

    enabled: bool = Field(strict=True, default=True)
    batches: bool = Field(strict=True, default=True, description="It is told that batches ended.")
    jobs: EndedJobs | None = Field(default=None, description="Which ended jobs it is told of. Null: of none.")
    most_jobs: int = Field(
        strict=True, default=100, ge=1, le=MAX_JOBS_OF_A_MESSAGE, description="Ended jobs of one message, at most."
    )


WebhookAddress = Annotated[
    str, Field(min_length=1, max_length=500, pattern=NO_NUL, description="It takes POSTs of JSON.")
]


class NewWebhook(WebhookFigures):
    url: WebhookAddress

    def figures(self) -> dict[str, Any]:
        return _heard(self.model_dump())


class ChangeWebhook(WebhookFigures):
    """Fields that are left out stay as they are."""

    model_config = ConfigDict(json_schema_extra=as_changes)

    url: WebhookAddress = ""

    def figures(self) -> dict[str, Any]:
        """The given values."""
        given = {name: value for name, value in self.model_dump().items() if name in self.model_fields_set}
        return _heard(given)


class SendAgain(WithReason):
    confirm: bool = Field(strict=True, default=False, description="False: only say how many messages there are.")
    since: Moment | None = Field(default=None, description="Only messages that failed for good since.")


class Reset(WithReason):
    delay_seconds: DelaySeconds | None = None


class ChangePriority(WithReason):
    priority: Priority


class CancelMany(WithReason):
    ids: Ids


class RescheduleMany(Reschedule):
    ids: Ids


class ResetMany(Reset):
    ids: Ids


class ChangeBatchPriorityInput(ChangePriority, WithCanary):
    pass


class ChangePriorityMany(ChangePriority):
    ids: Ids


class Requeue(Input):
    payload: dict[str, Any] | None = Field(default=None, description="Instead of the failed job's.")
    priority: Priority | None = None
    note: Reason = ""


class LetterFilter(Narrowing):
    """Open dead letters that fit everything given; with nothing given, all of the project's."""

    kind: SearchedText | None = Field(default=None, max_length=100)
    service: SearchedText | None = Field(default=None, max_length=64)
    error_code: SearchedText | None = Field(default=None, max_length=64)
    fingerprint: SearchedText | None = Field(default=None, max_length=32)
    batch_id: UUID | None = None
    created_from: Moment | None = None
    created_until: Moment | None = None


def _one_of_both(schema: dict[str, Any]) -> None:
    """Describe that exactly one of both is given; null is left out, as it would say nothing of the other."""
    for name in ("ids", "filter"):
        described = schema["properties"][name]
        del described["default"]
        described.update(next(choice for choice in described.pop("anyOf") if choice != {"type": "null"}))
    by_ids: dict[str, Any] = {"required": ["ids"], "not": {"required": ["filter"]}}
    if "canary" in schema["properties"]:
        by_ids["properties"] = {"canary": {"type": "null"}}
        _percent_with_its_canary(schema)
    schema["oneOf"] = [by_ids, {"required": ["filter"], "not": {"required": ["ids"]}}]


class Selection(Input):
    """Either ids (answered at once) or a filter (an operation in the background)."""

    model_config = ConfigDict(json_schema_extra=_one_of_both)

    ids: Ids | None = None
    filter: LetterFilter | None = None

    @field_validator("ids", "filter", mode="before")
    @classmethod
    def chooses(cls, given: Any) -> Any:
        return not_null(given)

    @model_validator(mode="after")
    def one_of_both(self) -> Self:
        if (self.ids is None) == (self.filter is None):
            raise PydanticCustomError("one_of_both", "Give either ids or filter.")
        return self


class RequeueBatch(WithCanary):
    priority: Priority | None = None
    spread_seconds: float = Field(
        strict=True, default=0, ge=0, le=MAX_DELAY_SECONDS, description="Spread the starts over this."
    )
    note: Reason = ""


class RequeueMany(Selection, WithCanary):
    model_config = ConfigDict(json_schema_extra=_one_of_both)

    payload: dict[str, Any] | None = Field(default=None, description="Instead of each failed job's.")
    priority: Priority | None = None
    spread_seconds: float = Field(
        strict=True, default=0, ge=0, le=MAX_DELAY_SECONDS, description="Spread the starts over this."
    )
    note: Reason = ""

    @model_validator(mode="after")
    def by_filter(self) -> Self:
        if self.canary is not None and self.filter is None:
            raise PydanticCustomError("by_filter", "canary goes with filter: what is named by ids is done at once.")
        return self


class Discard(Input):
    reason: GivenReason


class DiscardMany(Selection):
    reason: GivenReason
