"""What a producer asks for, checked before anything is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

import pydantic_core
from django.conf import settings
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from jobs.handlers.fallback import Fallback, after_wait, next_way
from jobs.handlers.registry import Cost, Handler, find_handler
from jobs.lanes import escaped
from jobs.models import OnFailure, RetryPolicy, new_id
from jobs.states import Priority
from queueops.core.errors import ForeignUser, QueueOpsError, fields_of
from queueops.core.sealing import MARK
from queueops.core.values.moments import Moment
from queueops.core.values.tags import Tags
from queueops.core.web.nul import NO_NUL, NUL_ESCAPE
from queueops.tenancy.credentials import CredentialNotAllowed, UsableCredential, usable_by
from queueops.tenancy.models import LONGEST_LABEL
from ratelimits.subjects import LONGEST_NAME

from .choose_way import GOES_LIVE, ChosenWay, WayRules, choose_way

MAX_DELAY_SECONDS = 366 * 24 * 3600
DEBOUNCES = 10  # the longest wait of a debounced job, where it is not given
MOST_WAITED_FOR = 100  # by one job or batch


UserLabelText = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_LABEL, strip_whitespace=True)]


After = Annotated[
    tuple[UUID, ...],
    Field(
        max_length=MOST_WAITED_FOR,
        description=f"Jobs and batches of the project that must end first, by their ids; at most {MOST_WAITED_FOR}.",
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


class PayloadTooLarge(QueueOpsError):
    """The payload is too large."""

    code = "payload_too_large"
    status = 413
    detail_fields = ("given_bytes", "limit_bytes")


# PostgreSQL stores later and earlier times than Python can read: one such row breaks every list it is in.
def _readable(moment: datetime) -> datetime:
    if not datetime(1970, 1, 1, tzinfo=UTC) <= moment < datetime(9999, 1, 1, tzinfo=UTC):
        raise PydanticCustomError("time_range", "Write a time of the years 1970 to 9998")
    return moment


Due = Annotated[Moment, AfterValidator(_readable)]


class JobSpec(BaseModel):
    """What a producer asks for."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    kind: str = Field(description="Which handler carries it out.", max_length=100)
    payload: dict[str, Any] = Field(default_factory=dict, description="Validated against the handler's schema.")
    priority: Priority = Priority.NORMAL
    user_id: UUID | None = Field(default=None, description="The end user on whose behalf the call is made.")
    idempotency_key: Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=NO_NUL)] | None = Field(
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
    debounce_seconds: float | None = Field(
        default=None,
        gt=0,
        le=MAX_DELAY_SECONDS,
        description="Begin when so long no job with the unique_key was submitted; each replaces the one that waits.",
    )
    debounce_most_seconds: float | None = Field(
        default=None,
        gt=0,
        le=MAX_DELAY_SECONDS,
        description="At most so long after the first. By default ten times debounce_seconds.",
    )
    scheduled_at: Due | None = Field(default=None, description="Not before this time.")
    delay_seconds: float | None = Field(
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
    cost: int | None = Field(default=None, ge=0, le=2_000_000_000, description="Estimated units or tokens.")
    model: str | None = Field(
        default=None, max_length=100, pattern=NO_NUL, description="The service's model, where it has several."
    )
    tags: Tags = Field(default=(), description="To find it by: at most 20, each of at most 100 characters, no commas.")
    user_label: Annotated[UserLabelText, StringConstraints(pattern=NO_NUL)] | None = Field(
        default=None, description="What operators call the user of `user_id`; the last one given is shown."
    )
    after: After = ()
    on_failure: OnFailureOfThose = OnFailure.CANCEL

    @model_validator(mode="after")
    def one_time(self) -> JobSpec:
        if self.scheduled_at is not None and self.delay_seconds is not None:
            raise PydanticCustomError("one_time", "Give scheduled_at or delay_seconds, not both.")
        if self.user_label is not None and self.user_id is None:
            raise PydanticCustomError("whose_label", "user_label says what the user of user_id is called: give both.")
        return self

    @model_validator(mode="after")
    def one_of_its_key(self) -> JobSpec:
        if self.unique_key is None and (self.debounce_seconds or self.if_pending == "replace"):
            raise PydanticCustomError("whose_key", "debounce_seconds and if_pending go by unique_key: give it, too.")
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

    @property
    def replaces(self) -> bool:
        """Whether it takes the place of a job with its unique_key."""
        return self.if_pending == "replace" or self.debounce_seconds is not None

    @property
    def longest_debounce(self) -> float | None:
        """In seconds; None: it is not debounced."""
        if self.debounce_seconds is None:
            return None
        return self.debounce_most_seconds or min(MAX_DELAY_SECONDS, DEBOUNCES * self.debounce_seconds)


class WatchedWays(NamedTuple):
    """
    For what a job that may go another way is looked at while it waits.

    Attributes:
        after_seconds: It goes on elsewhere when it has waited so long for a limit; None: it does not.
        on_outage: It goes on elsewhere when what it calls does not answer.
    """

    after_seconds: float | None
    on_outage: bool


@dataclass(frozen=True, slots=True)
class Details:
    """
    What limits and coalescing go by, as the handler reads it from a payload.

    Attributes:
        known_cost: The part of the cost that is no guess; None: all of it.
        units: What it takes by unit, beside its cost; see ratelimits/costs.py.
        url: Where its call goes, as far as the handler says so; empty: the credential's address, or the service's own.
        coalesce: The handler's key; None: the job leaves alone.
        watched: For what it is looked at as it waits; None: it has no other way to go.
    """

    model: str | None = None
    credential: str | None = None
    known_cost: int | None = None
    units: Mapping[str, int] | None = None
    url: str = ""
    coalesce: str | None = None
    watched: WatchedWays | None = None


@dataclass(frozen=True, slots=True)
class PreparedJob:
    """A validated job, ready to insert."""

    id: UUID
    handler: Handler
    spec: JobSpec
    payload: str
    service: str
    cost: int
    details: Details = Details()
    effect_key: str = ""
    origin: UUID | None = None
    delay_seconds: float | None = None
    kept_tags: tuple[str, ...] = ()  # of the job whose place it takes
    way: ChosenWay = GOES_LIVE
    note: str = ""  # for its timeline
    ended_batch: str | None = None  # whose callback it is, as JSON text


class Rules:
    """What jobs are held against besides their handler's schema; one object serves a whole batch."""

    def __init__(self, project_id: str | None = None, *, only_user: UUID | None = None) -> None:
        """
        Args:
            project_id: The producer's, whose credentials its jobs may name; None: the platform submits them itself.
            only_user: The end user who submits, for nobody else.
        """
        self.project_id = project_id
        self.only_user = only_user
        self.max_payload_bytes: int = settings.QUEUEOPS.max_payload_bytes
        self.max_line_bytes: int = settings.QUEUEOPS.max_job_bytes

    def owned(self, spec: JobSpec) -> JobSpec:
        """
        Raises:
            ForeignUser
        """
        if self.only_user is None:
            return spec
        if spec.user_id not in (None, self.only_user):
            raise ForeignUser(fields={"user_id": ["Must be your own; leave it out."]})
        if spec.user_label is not None:
            raise ForeignUser(fields={"user_label": ["Operators read it: the app's key gives it, no user."]})
        return spec.model_copy(update={"user_id": self.only_user})

    @cached_property
    def retry_policies(self) -> frozenset[str]:
        """Read when first asked for: most jobs name no policy, and a single job should not pay for the query."""
        return frozenset(RetryPolicy.objects.values_list("name", flat=True))

    @cached_property
    def credentials(self) -> dict[str, UsableCredential]:
        """Those that the project may use, pools among them, and the service that each opens."""
        return usable_by(self.project_id)

    def is_pool(self, credential: str | None) -> bool:
        """Whether the project names a pool of credentials so."""
        if credential is None or self.project_id is None:
            return False
        found = self.credentials.get(credential)
        return found is not None and found.is_pool

    def base_url(self, credential: str | None) -> str:
        """A credential's own address, where the project names one that has any."""
        if credential is None or self.project_id is None:
            return ""
        found = self.credentials.get(credential)
        return found.base_url if found is not None else ""

    @cached_property
    def ways(self) -> WayRules:
        """Which jobs go by batch; read for kinds that have a batch form alone."""
        return WayRules.read(self.project_id)

    def read_all(self) -> None:
        """Ask the database now, for a thread that must not."""
        _ = self.retry_policies, self.credentials, self.ways


def prepare_job(spec: JobSpec, *, rules: Rules | None = None, **extra: Any) -> PreparedJob:
    """
    Validate one job against its handler's schema and the rules.

    Args:
        rules: Of the moment, where not given.
        extra: Fields of PreparedJob: `effect_key`, `origin`, `delay_seconds`.

    Raises:
        UnknownKind, InvalidJob, PayloadTooLarge, CredentialNotAllowed, ForeignUser, BadDeadline, NoBatchForm
    """
    rules = rules or Rules()
    spec = rules.owned(spec)
    handler = find_handler(spec.kind)
    if handler.internal and rules.project_id is not None:
        raise InvalidJob("Such jobs are not for producers.", fields={"kind": [f"only QueueOps submits {spec.kind!r}"]})
    try:
        text = pydantic_core.to_json(spec.payload, inf_nan_mode="constants")
        payload = handler.schema.validate_json(text)
    except ValidationError as error:
        raise InvalidJob(
            f"The payload does not fit {spec.kind!r}.", fields=fields_of(error, prefix="payload")
        ) from None
    except (ValueError, RecursionError) as error:
        raise InvalidJob("The payload cannot be stored as JSON.", fields={"payload": [str(error)]}) from None
    limit = rules.max_payload_bytes
    if len(text) > limit:
        raise PayloadTooLarge(
            f"The payload has {len(text):,} bytes; at most {limit:,} fit. Put large content elsewhere and send a "
            "reference, or split the job.",
            given_bytes=len(text),
            limit_bytes=limit,
        )
    if NUL_ESCAPE.search(text):
        raise InvalidJob("The payload holds a NUL character.", fields={"payload": ["\\u0000 cannot be stored"]})
    if MARK.encode() in text:
        raise InvalidJob("The payload holds a reserved text.", fields={"payload": [f"{MARK!r} cannot be stored"]})
    if spec.retry_policy is not None and spec.retry_policy not in rules.retry_policies:
        raise InvalidJob("Unknown retry policy.", fields={"retry_policy": [f"{spec.retry_policy!r} does not exist"]})
    details, cost = describe(handler, payload, spec)
    if len(escaped(details.model or "")) > LONGEST_NAME:  # a lane's name holds it, and has to fit its column
        fault = f"at most {LONGEST_NAME} characters, percent-encoded"
        raise InvalidJob("The model's name is too long.", fields={"model": [fault]})
    service = handler.service_of(payload)
    _check_credential(details.credential, service, rules, field="credential")
    if handler.fallback and (ways := handler.fallback(payload)):
        details = replace(details, watched=_check_ways(handler, ways, rules))
    way = way_of(handler, payload, spec, details, rules=rules, delay_seconds=extra.get("delay_seconds"))
    return PreparedJob(new_id(), handler, spec, text.decode(), service, cost, details, way=way, **extra)


def way_of(
    handler: Handler, payload: Any, spec: JobSpec, details: Details, *, rules: Rules, delay_seconds: float | None
) -> ChosenWay:
    """
    Return which way a job goes that begins after so many seconds.

    Raises:
        BadDeadline, NoBatchForm
    """
    return choose_way(
        handler,
        payload,
        spec,
        rules=lambda: rules.ways,
        service=handler.service_of(payload),
        base_url=lambda: rules.base_url(details.credential),
        # Each call of a pool's jobs chooses its key at the claim; a batch has one for all its lines.
        is_whole=bool(details.credential and details.model)
        and not rules.is_pool(details.credential)
        and not delay_seconds,
    )


def _check_ways(handler: Handler, ways: Sequence[Fallback], rules: Rules) -> WatchedWays:
    """Hold a job's other ways against what the first is held against; return for what it is looked at as it waits."""
    for place, way in enumerate(ways):
        credential = handler.credential(way.payload) if handler.credential else None
        _check_credential(credential, handler.service_of(way.payload), rules, field=f"fallback.{place}.credential")
    return watched(ways, 0)


def watched(ways: Sequence[Fallback], step: int) -> WatchedWays:
    """Return for what a job at `step` is looked at."""
    return WatchedWays(after_wait(ways, step), next_way(ways, step, "unavailable") is not None)


def _check_credential(name: str | None, service: str, rules: Rules, *, field: str) -> None:
    if not name or rules.project_id is None:
        return
    found = rules.credentials.get(name)
    if found is None or found.service != service:
        # One answer to all: whether a credential of that name exists is not the producer's to know.
        raise CredentialNotAllowed(
            f"The project may not use a credential {name!r} for {service}. An administrator makes it "
            "and adds the project to it.",
            credential=name,
            project=rules.project_id,
            fields={f"payload.{field}": ["the project may not use it, or it does not exist"]},
        )


def describe(handler: Handler, payload: Any, spec: JobSpec) -> tuple[Details, int]:
    """Return what limits and coalescing go by, and the cost; a cost that the producer gives is taken as known."""
    estimate = handler.estimated_cost(payload) if spec.cost is None else Cost(spec.cost)
    details = Details(
        model=spec.model or (handler.model(payload) if handler.model else None),
        credential=handler.credential(payload) if handler.credential else None,
        known_cost=estimate.known if estimate.unknown else None,
        units=estimate.units or None,
        url=handler.target(payload) if handler.target else "",
        coalesce=handler.coalesce.key(payload) if handler.coalesce else None,
    )
    return details, estimate.known + estimate.unknown


def parse_spec(line: bytes | str | Mapping[str, Any]) -> JobSpec:
    """
    Read one job from JSON text or parsed JSON.

    Raises:
        InvalidJob: With the path of each bad field.
    """
    try:
        if isinstance(line, Mapping):
            return JobSpec.model_validate(line)
        return JobSpec.model_validate_json(line)
    except ValidationError as error:
        fields = fields_of(error)
        if list(fields) == [""]:
            broken = error.errors()[0]["type"] in ("json_invalid", "model_type")
            raise InvalidJob(f"{'Not a JSON object: ' if broken else ''}{fields[''][0]}") from None
        raise InvalidJob("The job is not valid.", fields=fields) from None
