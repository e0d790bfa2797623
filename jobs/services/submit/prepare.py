"""Jobs as their producers ask for them, checked by their handlers before anything is stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import cached_property
from typing import Any, NamedTuple
from uuid import UUID

import pydantic_core
from django.conf import settings
from django.utils import timezone
from pydantic import ValidationError

from jobs.features.dependencies.takes import IN_JSON, Take, takes_of, validate_with_stand_ins
from jobs.handlers.fallback import Fallback, after_wait, next_way
from jobs.handlers.registry import Cost, Handler, find_handler
from jobs.lanes import escaped
from jobs.models import RetryPolicy, new_id
from queueops.core.errors import ForeignUser, QueueOpsError, fields_of
from queueops.core.sealing import MARK
from queueops.core.web.requests.nul import NUL_ESCAPE
from queueops.tenancy.secrets.credentials import CredentialNotAllowed, UsableCredential, usable_by
from ratelimits.costs import CALLS
from ratelimits.subjects import MAX_NAME_LENGTH

from .choose_delivery import GOES_LIVE, ChosenWay, WayRules, choose_way
from .documents import files
from .finite import refuse_endless, refuse_none_keys
from .spec import InvalidJob, JobSpec


class PayloadTooLarge(QueueOpsError):
    """The payload is too large."""

    code = "payload_too_large"
    status = 413
    detail_fields = ("given_bytes", "limit_bytes")


class WatchedWays(NamedTuple):
    """
    The conditions under which a waiting job takes its next fallback.

    Attributes:
        after_seconds: How long the job waits for a limit before it takes its fallback; None: it keeps waiting.
        on_outage: The job takes its fallback when its target does not answer.
    """

    after_seconds: float | None
    on_outage: bool


class Details(NamedTuple):
    """
    The values that limits and coalescing use, as the handler reads them from a payload.

    Attributes:
        known_cost: The part of the cost that is no guess; None: all of it.
        units: The amounts by unit, besides the cost; see ratelimits/costs.py.
        url: The address that the handler calls, if it gives one; empty: the credential's address, or the service's own.
        coalesce: The handler's key for jobs that may leave in one call; None: the job leaves alone.
        watched: The conditions for its fallbacks; None: it has no fallback.
        is_bound: The guessed part of the cost is an upper bound; False: the call may cost more.
        told_output: The maximum of output tokens that the call sends to its provider; None: it sends none.
    """

    model: str | None = None
    credential: str | None = None
    known_cost: int | None = None
    units: Mapping[str, int] | None = None
    url: str = ""
    coalesce: str | None = None
    watched: WatchedWays | None = None
    is_bound: bool = True
    told_output: int | None = None


class PreparedJob(NamedTuple):
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
    kept_tags: tuple[str, ...] = ()  # tags of the job that it replaces
    way: ChosenWay = GOES_LIVE
    note: str = ""  # for its timeline
    ended_batch: str | None = None  # the batch whose callback it is, as JSON text
    takes: tuple[Take, ...] = ()  # the values of its payload that are not known yet
    lacks_files: bool = False  # the files that its payload names are not read yet


class Rules:
    """The rules for jobs beyond their handler's schema; one object serves a whole batch."""

    def __init__(self, project_id: str | None = None, *, only_user: UUID | None = None) -> None:
        """
        Args:
            project_id: The producer's project, whose credentials jobs may name; None: the platform submits them itself.
            only_user: The end user who submits, and only for themselves.
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
        """The names of retry policies. Most jobs name no policy, so the names are read only when first needed."""
        return frozenset(RetryPolicy.objects.values_list("name", flat=True))

    @cached_property
    def credentials(self) -> dict[str, UsableCredential]:
        """The credentials that the project may use, pools among them, and the service of each."""
        return usable_by(self.project_id)

    def is_pool(self, credential: str | None) -> bool:
        """Whether this is the name of one of the project's credential pools."""
        if credential is None or self.project_id is None:
            return False
        found = self.credentials.get(credential)
        return found is not None and found.is_pool

    def base_url(self, credential: str | None) -> str:
        """Return a credential's own address; empty: the project has no such credential, or it has no address."""
        if credential is None or self.project_id is None:
            return ""
        found = self.credentials.get(credential)
        return found.base_url if found is not None else ""

    def with_files(self, payload: dict[str, Any], *, read: bool) -> dict[str, Any]:
        """
        Raises:
            InvalidJob
        """
        if self.only_user is not None:
            raise InvalidJob("Files are the project's.", fields={"payload": ["$file is not for end users"]})
        return files.with_files(payload, project_id=self.project_id, most_bytes=self.max_payload_bytes, read=read)

    @cached_property
    def ways(self) -> WayRules:
        """The rules for going by batch, as of their first reading; see `choose_way` for which jobs they are read."""
        return WayRules.read(self.project_id)

    def read_all(self) -> None:
        """Read everything now, for a thread that must not query the database."""
        _ = self.retry_policies, self.credentials, self.ways


def prepare_job(
    spec: JobSpec, *, rules: Rules | None = None, may_take: bool = True, read_files: bool = True, **extra: Any
) -> PreparedJob:
    """
    Validate one job against its handler's schema and the rules.

    Args:
        rules: The rules of the producer's project; None: the rules for jobs that the platform itself submits.
        may_take: Whether `$from` and `$file` in the payload are placeholders. False: they are ordinary values.
        read_files: Whether to read files that the payload names. False, for a thread that must not query the database:
            another thread then reads the files and prepares the job again.
        extra: Fields of PreparedJob: `effect_key`, `origin`, `delay_seconds`.

    Raises:
        UnknownKind, InvalidJob, PayloadTooLarge, CredentialNotAllowed, ForeignUser, BadDeadline, NoBatchForm
    """
    rules = rules or Rules()
    given = spec = rules.owned(spec)
    _check_expiry(spec, extra.get("delay_seconds"))
    handler = find_handler(spec.kind)
    if handler.internal and rules.project_id is not None:
        raise InvalidJob("Such jobs are not for producers.", fields={"kind": [f"only QueueOps submits {spec.kind!r}"]})
    try:
        text = pydantic_core.to_json(spec.payload, inf_nan_mode="constants")
        refuse_endless(spec.payload, text)
        refuse_none_keys(spec.payload, text)
        names_files = may_take and files.IN_JSON in text and not handler.internal
        if names_files:
            spec = spec.with_payload(rules.with_files(spec.payload, read=read_files))
            text = pydantic_core.to_json(spec.payload)
        takes = takes_of(spec.payload, spec.after) if may_take and IN_JSON in text and not handler.internal else ()
        payload = validate_with_stand_ins(handler, spec.payload, takes) if takes else handler.schema.validate_json(text)
    except ValidationError as error:
        fields = fields_of(error, prefix="payload", known=handler.payload_fields)
        raise InvalidJob(f"The payload does not fit {spec.kind!r}.", fields=fields) from None
    except (ValueError, RecursionError) as error:
        raise InvalidJob("The payload cannot be stored as JSON.", fields={"payload": [str(error)]}) from None
    kept = _storable(spec, text, rules.max_payload_bytes)
    if spec.retry_policy is not None and spec.retry_policy not in rules.retry_policies:
        raise InvalidJob("Unknown retry policy.", fields={"retry_policy": [f"{spec.retry_policy!r} does not exist"]})
    details, cost = describe(handler, payload, spec)
    if len(escaped(details.model or "")) > MAX_NAME_LENGTH:  # a lane's name contains it, and has to fit its column
        fault = f"at most {MAX_NAME_LENGTH} characters, percent-encoded"
        raise InvalidJob("The model's name is too long.", fields={"model": [fault]})
    service = handler.service_of(payload)
    _check_project(handler, payload, rules)
    _check_credential(handler, payload, rules)
    if handler.fallback and (ways := handler.fallback(payload)):
        details = details._replace(watched=_check_ways(handler, ways, rules))
    way = way_of(handler, payload, spec, details, rules=rules, delay_seconds=extra.get("delay_seconds"))
    job = PreparedJob(new_id(), handler, spec, kept, service, cost, details, way=way, takes=takes, **extra)
    return job._replace(spec=given, lacks_files=True) if names_files and not read_files else job


def _storable(spec: JobSpec, text: bytes, limit: int) -> str:
    """
    Return the payload as it is stored.

    Raises:
        PayloadTooLarge, InvalidJob
    """
    kept = spec.written_payload(text)
    size = len(kept) if kept.isascii() else len(kept.encode())
    if size > limit:
        raise PayloadTooLarge(
            f"The payload has {size:,} bytes; at most {limit:,} fit. Put large content elsewhere and send a "
            "reference, or split the job.",
            given_bytes=size,
            limit_bytes=limit,
        )
    if NUL_ESCAPE.search(text):
        raise InvalidJob("The payload holds a NUL character.", fields={"payload": ["\\u0000 cannot be stored"]})
    if MARK.encode() in text:
        raise InvalidJob("The payload holds a reserved text.", fields={"payload": [f"{MARK!r} cannot be stored"]})
    return kept


def _check_expiry(spec: JobSpec, delay_seconds: float | None) -> None:
    # A job with an idempotency key may repeat a job that was accepted in time, and then gets the same answer.
    if spec.expires_at is None or spec.idempotency_key is not None:
        return
    delay = max(delay_seconds or spec.delay_seconds or 0.0, spec.debounce_seconds or 0.0)
    if spec.expires_at <= timezone.now() + timedelta(seconds=delay):
        words = "must be later than the job's delay" if delay else "must be in the future"
        raise InvalidJob("The job could never run.", fields={"expires_at": [words]})


def way_of(
    handler: Handler, payload: Any, spec: JobSpec, details: Details, *, rules: Rules, delay_seconds: float | None
) -> ChosenWay:
    """
    Return the delivery of a job: live, or by a batch of its provider.

    Args:
        delay_seconds: The job begins after so many seconds; None: at once.

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
        # Jobs of a pool get their credential at the claim; a provider batch has one credential for all its lines.
        is_whole=bool(details.credential and details.model)
        and not rules.is_pool(details.credential)
        and not delay_seconds,
        asked_of=(details.credential or "", details.model or ""),
    )


def _check_ways(handler: Handler, ways: Sequence[Fallback], rules: Rules) -> WatchedWays:
    """Check the credentials of a job's fallbacks; return the conditions under which the job takes one."""
    for place, way in enumerate(ways):
        _check_credential(handler, way.payload, rules, within=f"fallback.{place}.")
    return watched(ways, 0)


def watched(ways: Sequence[Fallback], step: int) -> WatchedWays:
    """Return the conditions under which a job at `step` takes its next fallback."""
    return WatchedWays(after_wait(ways, step), next_way(ways, step, "unavailable") is not None)


def _check_project(handler: Handler, payload: Any, rules: Rules) -> None:
    only = handler.only_in(payload) if handler.only_in else rules.project_id
    if rules.project_id is not None and only != rules.project_id:
        fault = f"jobs of this payload run in the project {only!r} alone, and this is {rules.project_id!r}"
        raise InvalidJob(f"{handler.kind!r} is for another project.", fields={"kind": [fault]})


def _check_credential(handler: Handler, payload: Any, rules: Rules, *, within: str = "") -> None:
    name = handler.credential(payload) if handler.credential else None
    if not name or rules.project_id is None:
        return
    found, service = rules.credentials.get(name), handler.service_of(payload)
    if found is None or (handler.credential_faults is None and found.service != service):
        # The answer is always the same: producers must not learn whether a credential of that name exists.
        raise CredentialNotAllowed(
            f"The project may not use a credential {name!r} for {service}. An administrator makes it "
            "and adds the project to it.",
            credential=name,
            project=rules.project_id,
            fields={f"payload.{within}credential": ["the project may not use it, or it does not exist"]},
        )
    if handler.credential_faults and (faults := handler.credential_faults(payload, found)):
        raise CredentialNotAllowed(
            f"The call cannot go with the credential {name!r}.",
            credential=name,
            project=rules.project_id,
            fields={f"payload.{within}{field}": [fault] for field, fault in faults.items()},
        )


def describe(handler: Handler, payload: Any, spec: JobSpec) -> tuple[Details, int]:
    """Return the values that limits and coalescing use, and the cost; a cost from the producer counts as known."""
    estimate = handler.estimated_cost(payload)
    if spec.cost is not None:
        estimate = Cost(spec.cost, calls=estimate.calls)
    details = Details(
        model=spec.model or (handler.model(payload) if handler.model else None),
        credential=handler.credential(payload) if handler.credential else None,
        known_cost=estimate.known if estimate.unknown else None,
        units={**estimate.units, CALLS: estimate.calls} if estimate.calls > 1 else estimate.units or None,
        url=handler.target(payload) if handler.target else "",
        coalesce=handler.coalesce.key(payload) if handler.coalesce else None,
        is_bound=estimate.is_bound,
        told_output=estimate.told_output,
    )
    return details, estimate.known + estimate.unknown
