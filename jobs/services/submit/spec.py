"""A job as its producer asks for it, read and checked before its handler is looked up."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    PrivateAttr,
    StringConstraints,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from jobs.models import OnFailure
from jobs.states import Priority
from queueops.core.errors import QueueOpsError, fields_of
from queueops.core.values.moments import PATTERN, Moment
from queueops.core.values.tags import Tags
from queueops.core.values.written import member
from queueops.core.web.requests.nul import NO_NUL
from queueops.tenancy.models import MAX_LABEL_LENGTH

MAX_DELAY_SECONDS = 366 * 24 * 3600
DEBOUNCES = 10  # a debounced job waits at most so many times its debounce_seconds, by default
MAX_WAITED_FOR = 100  # dependencies of one job or batch
UserLabelText = Annotated[str, StringConstraints(min_length=1, max_length=MAX_LABEL_LENGTH, strip_whitespace=True)]
MAX_IDEMPOTENCY_KEY_LENGTH = 200
IdempotencyKey = Annotated[str, StringConstraints(min_length=1, max_length=MAX_IDEMPOTENCY_KEY_LENGTH, pattern=NO_NUL)]


def name_in(given: object) -> UUID | str:
    """The name of a job in `after`: an id, or an idempotency key."""
    if isinstance(given, UUID):
        return given
    if not isinstance(given, str) or not 0 < len(given) <= MAX_IDEMPOTENCY_KEY_LENGTH or "\0" in given:
        raise PydanticCustomError("name_of_job", "Write an id, or an idempotency key of 1 to 200 characters")
    with suppress(ValueError):
        return UUID(given)
    return given


NameOfJob = Annotated[
    UUID | str,
    PlainValidator(name_in),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": MAX_IDEMPOTENCY_KEY_LENGTH}),
]
After = Annotated[
    tuple[NameOfJob, ...],
    Field(
        max_length=MAX_WAITED_FOR,
        description="Jobs and batches of the project that must end first, by their ids, and jobs by their idempotency "
        f"keys, also of earlier lines of the same batch; at most {MAX_WAITED_FOR}.",
    ),
    AfterValidator(lambda ids: tuple(dict.fromkeys(ids))),
]
OnFailureOfThose = Annotated[
    OnFailure,
    Field(
        description="When one of `after` does not succeed (it is a dead letter, cancelled or expired): cancel it, run "
        "it all the same, or hold it until a requeue of that one succeeds."
    ),
]


class InvalidJob(QueueOpsError):
    """The job is not valid."""

    code = "invalid_job"
    status = 422


# PostgreSQL stores later and earlier times than Python can read: one such row breaks every list that contains it.
def _readable(moment: datetime) -> datetime:
    if not datetime(1970, 1, 1, tzinfo=UTC) <= moment < datetime(9999, 1, 1, tzinfo=UTC):
        raise PydanticCustomError("time_range", "Write a time of the years 1970 to 9998")
    return moment


YEARS = r"(19[7-9]\d|[2-8]\d{3}|9[0-8]\d{2}|99[0-8]\d|999[0-8])"  # the years that _readable accepts
Due = Annotated[
    Moment,
    AfterValidator(_readable),
    Field(json_schema_extra={"pattern": PATTERN.replace(r"^\d{4}", f"^{YEARS}")}),
]


# Refuse true and texts where a number is wanted: Pydantic would read true as 1, and "5" as 5.
def _written_as_number(given: object) -> object:
    if isinstance(given, bool | str):
        raise PydanticCustomError("number", "Write a number")
    return given


Figure = BeforeValidator(_written_as_number)


class JobSpec(BaseModel):
    """A job as its producer asks for it."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    kind: str = Field(description="Which handler carries it out.", max_length=100)
    payload: dict[str, Any] = Field(
        default_factory=dict,
        description="Validated against the handler's schema. A value may come from the result of a job in `after`: "
        '`{"$from": {"job": "its id or idempotency key", "path": "data.total"}}`. A text may come from a file: '
        '`{"$file": "file-..."}`.',
    )
    priority: Priority = Priority.NORMAL
    user_id: UUID | None = Field(default=None, description="The end user on whose behalf the call is made.")
    idempotency_key: IdempotencyKey | None = Field(
        default=None, description="Unique in the project: a second job with it is not created."
    )
    unique_key: Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=NO_NUL)] | None = Field(
        default=None, description="While a job with it has not ended, no second one is created."
    )
    unique_in: Literal["kind", "project"] = Field(
        default="kind", description="Whether jobs of other kinds may have the same unique_key."
    )
    if_pending: Literal["keep", "replace"] = Field(
        default="keep",
        description="When a job with the unique_key has not ended: keep it as it is, or replace its work where it has "
        "not begun.",
    )
    debounce_seconds: Annotated[float | None, Figure] = Field(
        default=None,
        gt=0,
        le=MAX_DELAY_SECONDS,
        description="Begin when so long no job with the unique_key was submitted; each replaces the one that waits.",
    )
    debounce_most_seconds: Annotated[float | None, Figure] = Field(
        default=None,
        gt=0,
        le=MAX_DELAY_SECONDS,
        description="At most so long after the first. By default ten times debounce_seconds.",
    )
    scheduled_at: Due | None = Field(default=None, description="Not before this time.")
    delay_seconds: Annotated[float | None, Figure] = Field(
        default=None, ge=0, le=MAX_DELAY_SECONDS, description="Not before this many seconds from now."
    )
    expires_at: Due | None = Field(default=None, description="Fails if it still waits at this time.")
    complete_by: Due | None = Field(
        default=None,
        description="By when it is wanted: what has time goes by a batch of its provider, at half the price.",
    )
    via: Literal["auto", "live", "batch"] | None = Field(
        default=None,
        description="live: a call of its own; batch: by a batch of its provider; auto, and the default of what has a "
        "complete_by: by batch where the deadline allows it.",
    )
    retry_policy: str | None = Field(default=None, description="Instead of the handler's own.", max_length=40)
    cost: Annotated[int | None, Figure] = Field(
        default=None, ge=0, le=2_000_000_000, description="Estimated units or tokens."
    )
    model: str | None = Field(
        default=None, max_length=100, pattern=NO_NUL, description="The service's model, where it has several."
    )
    tags: Tags = Field(default=(), description="To find it by: at most 20, each of at most 100 characters, no commas.")
    user_label: Annotated[UserLabelText, StringConstraints(pattern=NO_NUL)] | None = Field(
        default=None, description="What operators call the user of `user_id`; the last one given is shown."
    )
    after: After = ()
    on_failure: OnFailureOfThose = OnFailure.CANCEL

    _line: bytes | str | None = PrivateAttr(None)

    @model_validator(mode="after")
    def one_time(self) -> JobSpec:
        if self.scheduled_at is not None and self.delay_seconds is not None:
            raise PydanticCustomError("one_time", "Give scheduled_at or delay_seconds, not both.")
        if self.expires_at is not None and self.scheduled_at is not None and self.expires_at <= self.scheduled_at:
            raise PydanticCustomError("never", "It could never run: expires_at is no later than scheduled_at.")
        if self.user_label is not None and self.user_id is None:
            raise PydanticCustomError("whose_label", "user_label says what the user of user_id is called: give both.")
        return self

    @model_validator(mode="after")
    def one_of_its_key(self) -> JobSpec:
        if self.unique_key is None and (
            self.debounce_seconds or self.if_pending == "replace" or self.unique_in == "project"
        ):
            raise PydanticCustomError(
                "whose_key", "debounce_seconds, if_pending and unique_in go by unique_key: give it, too."
            )
        if self.debounce_seconds is None and self.debounce_most_seconds is not None:
            raise PydanticCustomError("no_debounce", "debounce_most_seconds goes with debounce_seconds.")
        if self.debounce_seconds and (self.scheduled_at is not None or self.delay_seconds is not None):
            raise PydanticCustomError("one_time", "debounce_seconds says when it begins: give no other time.")
        if self.debounce_seconds and self.debounce_seconds > (self.debounce_most_seconds or MAX_DELAY_SECONDS):
            raise PydanticCustomError("short_debounce", "debounce_most_seconds is at least debounce_seconds.")
        if self.replaces and (self.after or self.complete_by is not None or self.via is not None):
            raise PydanticCustomError(
                "replaces", "What replaces a job takes its place: give no after, complete_by, via."
            )
        return self

    def written_in(self, line: bytes | str | None) -> JobSpec:
        """Keep the JSON text from which the job was parsed; None: there is no such text."""
        self._line = line
        return self

    def with_payload(self, payload: dict[str, Any]) -> JobSpec:
        """Return the same job with another payload, and without the JSON text, which has the old payload."""
        return self.model_copy(update={"payload": payload}).written_in(None)

    def written_payload(self, plain: bytes) -> str:
        """
        Return the payload as its producer wrote it, where that is known.

        Args:
            plain: The payload as JSON without spaces.
        """
        if (line := self._line) is not None:
            if isinstance(line, str):
                line = line.encode()
            if b'"payload":' + plain not in line:  # many programs write it without spaces
                return member(line.decode(errors="replace"), "payload") or plain.decode()
        return plain.decode()

    @property
    def replaces(self) -> bool:
        """Whether the job may replace the work of a waiting job with its unique_key."""
        return self.if_pending == "replace" or self.debounce_seconds is not None

    @property
    def longest_debounce(self) -> float | None:
        """The most seconds by which later jobs of its key can put the job off; None: the job is not debounced."""
        if self.debounce_seconds is None:
            return None
        return self.debounce_most_seconds or min(MAX_DELAY_SECONDS, DEBOUNCES * self.debounce_seconds)


FIGURES = frozenset(name for name, field in JobSpec.model_fields.items() if Figure in field.metadata)
_NUMBER = TypeAdapter(float)


def as_written_now(job: Any) -> Any:
    """
    Return a job that an earlier release stored in the form that this release takes.

    Earlier releases read "5" and true as numbers, and took unique_in without a unique_key, where it has no effect.
    """
    if not isinstance(job, dict):
        return job
    said = dict(job)
    for name in FIGURES & said.keys():
        if isinstance(said[name], bool | str):
            with suppress(ValidationError):
                number = _NUMBER.validate_python(said[name])
                said[name] = int(number) if number.is_integer() else number
    if said.get("unique_key") is None and said.get("unique_in") == "project":
        del said["unique_in"]
    return said


class WrittenJob(dict[str, Any]):
    """A job that was parsed, and the text that it was parsed from."""

    def __init__(self, job: Mapping[str, Any], text: bytes | str) -> None:
        super().__init__(job)
        self.text = text


def parse_spec(line: bytes | str | Mapping[str, Any], *, written: bytes | str | None = None) -> JobSpec:
    """
    Read one job from JSON text or parsed JSON.

    Args:
        written: The text that was parsed, where it is known: the payload is kept as it is written there.

    Raises:
        InvalidJob: With the path of each bad field.
    """
    try:
        if isinstance(line, Mapping):
            written = line.text if isinstance(line, WrittenJob) else written
            spec = JobSpec.model_validate(line)
            return spec if written is None else spec.written_in(written)
        return JobSpec.model_validate_json(line).written_in(line)
    except ValidationError as error:
        fields = fields_of(error, known=JobSpec.model_fields)
        if list(fields) == [""]:
            broken = error.errors()[0]["type"] in ("json_invalid", "model_type")
            if isinstance(line, bytes | str) and line[:100].lstrip()[:1] in ("[", b"["):
                raise InvalidJob(
                    'An array: one job a line is wanted, or {"jobs": [...]} as application/json.'
                ) from None
            raise InvalidJob(f"{'Not a JSON object: ' if broken else ''}{fields[''][0]}") from None
        raise InvalidJob("The job is not valid.", fields=fields) from None
