"""The bodies that the actions take. Unknown fields are refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self
from uuid import UUID

from pydantic import BeforeValidator, ConfigDict, Field, StringConstraints, field_validator, model_validator
from pydantic_core import PydanticCustomError

from jobs.models import OnFailure
from jobs.services.explain.snapshots import MAX_WAIT_SECONDS
from jobs.services.operate.bulk_outcome import CANARY_PERCENT, MAX_CANARIES, Canary
from jobs.services.submit.spec import MAX_DELAY_SECONDS, After, JobSpec, OnFailureOfThose
from jobs.states import Priority
from queueops.core.values.moments import Moment
from queueops.core.values.narrowing import Narrowing, SearchedText, not_null
from queueops.core.values.tags import Tags
from queueops.core.web.requests.nul import NO_NUL
from queueops.rest.inputs import Input
from queueops.tenancy.models import MAX_GUARDED
from ratelimits.tuning.concurrency_caps import MAX_CALLS_AT_ONCE

Reason = Annotated[str, StringConstraints(max_length=500)]
GivenReason = Annotated[str, StringConstraints(min_length=1, max_length=500, strip_whitespace=True, pattern=r"\S")]
DelaySeconds = Annotated[float, Field(strict=True, ge=0, le=MAX_DELAY_SECONDS)]
PlaceInResult = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=NO_NUL)]
KindName = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=NO_NUL)]
Ids = Annotated[list[UUID], Field(min_length=1, description="At most 10,000.")]


def _separated(given: Any) -> Any:
    return tuple(given.split(",")) if isinstance(given, str) else given


def _truth(given: Any) -> Any:
    if given not in ("true", "false"):
        raise PydanticCustomError("truth", "true or false")
    return given == "true"


class WaitInput(Input):
    """How long an answer may take while the job or batch goes on."""

    wait: float = Field(
        default=0,
        ge=0,
        le=MAX_WAIT_SECONDS,
        description=f"Seconds, at most {MAX_WAIT_SECONDS}: the answer comes as soon as it has ended, and as it is when "
        "the time is over or the process has no place for more who wait.",
    )


class TableInput(Input):
    """A batch's results as a file."""

    format: Literal["csv", "ndjson", "json"] = Field(default="csv", description="csv by default.")
    columns: Annotated[tuple[PlaceInResult, ...], BeforeValidator(_separated)] = Field(
        default=(), max_length=100, description="Places in the results, such as `data.total,text`."
    )
    with_input: Annotated[bool, BeforeValidator(_truth)] = Field(
        default=False, description="The payloads' members, too."
    )


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

    def options(self) -> dict[str, Any]:
        """Return all of them, as `submit_batch` takes them."""
        return {name: getattr(self, name) for name in BatchInput.model_fields}


class BatchDocument(BatchInput):
    # Any: the service validates each job and reports its line.
    jobs: list[Any] = Field(description="Each as in the submission of one job.")


class WithReason(Input):
    reason: Reason = ""


def _percent_with_its_canary(schema: dict[str, Any]) -> None:
    """Describe in the schema that `canary_percent` needs `canary`."""
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


class ReasonInQuery(Input):
    reason: Reason = Field(default="", description="For the audit trail.")


class GivenReasonInQuery(Input):
    reason: GivenReason = Field(description="For the audit trail.")


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
    """Describe that either `ids` or `filter` is given. Null is not described: it would mean neither."""
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
