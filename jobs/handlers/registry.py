"""Handlers: the code that carries out one kind of job, declared with `@handler`."""

from __future__ import annotations

import importlib
import inspect
import json
import logging
import pkgutil
import threading
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import permutations
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import UUID

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import module_has_submodule
from pydantic import TypeAdapter

from jobs.handlers.errors import ProviderError
from jobs.handlers.fallback import Fallback
from jobs.handlers.handler_options import Coalesce as Coalesce  # noqa: PLC0414 - handlers import it from here
from jobs.handlers.handler_options import check_options, read_call_type, read_schema, read_searchable, read_timeout
from jobs.states import CallType, ended_verdict
from queueops.core.errors import QueueOpsError
from queueops.core.values.near_names import nearest
from ratelimits.costs import Usage

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from jobs.handlers.batch_form import BatchForm
    from queueops.tenancy.secrets.credentials import OpenCredential, UsableCredential

P = TypeVar("P")
F = TypeVar("F", bound=Callable[..., Any])

OWN_HANDLERS = (
    "http.request",
    "google.sheets",
    "llm.generate",
    "llm.native.call",
    "llm.native.embed",
    "webhook",
    "alert",
    "django_task",
)
DEFAULT_TIMEOUT = timedelta(seconds=60)


class UnknownKind(QueueOpsError):
    """No handler carries out this kind of job."""

    code = "unknown_kind"
    status = 422
    detail_fields = ("kind", "known")


class JobCancelled(Exception):
    """Raised inside a synchronous handler by `job.raise_if_cancelled()`."""


class NotOurs(JobCancelled):
    """This run no longer owns the job: cancelled, timed out, or taken over. Its transaction is rolled back, too."""


@dataclass(frozen=True, slots=True)
class Done:
    """
    A handler's answer when its job succeeded.

    Attributes:
        result: JSON-able; kept with the job.
        cost: The units or tokens really used, if the estimate may be wrong.
        known_cost: The real amount of what `Cost.known` estimated, such as input tokens. The limits learn from it how
            wrong such estimates are.
        usage: The real use by unit. If `cost` is None, the tokens of `usage` are the cost.
    """

    result: Any = None
    cost: int | None = None
    known_cost: int | None = None
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class Continue:
    """
    A handler's answer when its job takes more calls: the job is given back, and no attempt is spent.

    At its next claim the job passes the limits again, and its handler finds `partial` in `job.partial`.

    Attributes:
        partial: JSON-able; stored with the job in place of its result.
        cost, usage: As in Done, for the call just made.
    """

    partial: Any
    message: str = ""
    cost: int | None = None
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """
    The cost of a call before it is made.

    Attributes:
        known: The known part, such as input tokens: never guessed lower.
        unknown: The guess at the rest, such as output tokens. A figure learned from earlier calls, if any, replaces it.
        units: The call's amounts by unit, for limits that count more than one figure: `{"input_tokens": 900,
            "output_tokens": 400}`. A figure learned from earlier calls, if any, replaces the output tokens.
        is_bound: Whether `unknown` and the output tokens of `units` are the most that the call can use. If False,
            figures learned from earlier calls may be higher.
        told_output: The maximum of output tokens that the request states to its provider; None: it states none.
        calls: How many calls the job makes, one after the other: each but the last ends with Continue. The other
            figures describe the largest call; `units` may have the input tokens of all calls as `input_of_calls`.
    """

    known: int
    unknown: int = 0
    units: Mapping[str, int] = field(default_factory=dict)
    is_bound: bool = True
    told_output: int | None = None
    calls: int = 1


class Poison(Exception):
    """
    Raised by a coalescing handler: some jobs made the call fail, nothing was applied, and the other jobs go again.

    Args:
        errors: The error of each job that made the call fail, by the job's place in the sequence; at least one.
    """

    def __init__(self, errors: Mapping[int, ProviderError]) -> None:
        super().__init__("; ".join(str(error) for error in errors.values()))
        self.errors = errors


class Bisect(Exception):
    """Raised by a coalescing handler: the call failed, nothing was applied, and the job at fault is unknown."""


@dataclass(frozen=True, slots=True)
class EndedBatch:
    """
    A batch, as its callback job receives it.

    Attributes:
        counts: The batch's items by state when the callback was released; a requeued item counts once, as its latest
            job.
        verdict: How the batch ended, in the word that every page shows; None: it has not ended.
    """

    batch: UUID
    name: str
    counts: Mapping[str, int]

    @classmethod
    def read(cls, text: str | None) -> EndedBatch | None:
        """Read the JSON text of the callback job's column."""
        if text is None:
            return None
        told = json.loads(text)
        return cls(UUID(told["batch"]), told["name"], told.get("counts", {}))

    @property
    def verdict(self) -> str | None:
        return ended_verdict(self.counts)

    def as_dict(self) -> dict[str, Any]:
        return {"batch": str(self.batch), "name": self.name, "verdict": self.verdict, "counts": dict(self.counts)}


_ONE_EVENT = threading.Lock()


@dataclass(slots=True)
class RunningJob(Generic[P]):
    """A running job, as its handler receives it."""

    id: UUID
    payload: P
    project: str
    user_id: UUID | None
    effect_key: str  # to send to a provider that takes such a key: it stays the same over retries and requeues
    attempt: int  # 1 for the first
    report: Callable[[int, str], None] = field(repr=False)
    cost: int = 1  # as estimated when it was submitted
    credential: OpenCredential | None = field(default=None, repr=False)
    partial: Any = None  # what the last Continue stored
    fallback_step: int = 0  # number of the fallback in use; 0: none. `payload` is the fallback's
    fallback_reason: str = ""
    payload_text: str = field(
        default="", repr=False
    )  # the JSON that the producer wrote, before any fallback; empty: not known
    ended_batch: EndedBatch | None = None  # for a job that a batch names in on_finish
    say: Callable[[str, str], None] = field(default=lambda level, text: None, repr=False)
    end: Callable[[Any], None] = field(default=lambda result: None, repr=False)
    _cancelled: threading.Event | None = field(default=None, init=False, repr=False)

    @property
    def cancelled(self) -> threading.Event:
        """Set when this run must stop: cancelled, timed out, taken over, or the executor stops. Made at first use."""
        if self._cancelled is None:
            with _ONE_EVENT:  # the handler's thread and the loop's thread may create it at once
                if self._cancelled is None:
                    self._cancelled = threading.Event()
        return self._cancelled

    def log(self, text: str, level: str = "INFO") -> None:
        """
        Store a line with this attempt, for people to read on the job's page and with its dead letter.

        Lines of the handler's own loggers are stored, too, if the installation's log level lets them through. The
        first 10 and the last 40 lines of an attempt are kept, 300 characters of each, secrets masked.
        """
        self.say(str(level), str(text))

    def progress(self, percent: int, message: str = "") -> None:
        """
        Report progress. It may be called often: only the latest report of about a second is stored.

        Args:
            percent: 0 to 100; values outside are clipped, and NaN is 0.
            message: At most 500 characters; the rest is cut.
        """
        # A handler that counts with NaN, such as 0.0 / 0.0 of NumPy, must not lose its work over a figure on a page.
        self.report(int(min(100.0, max(0.0, float(percent)))), str(message)[:500])

    def complete(self, result: Any = None) -> None:
        """
        Complete the job in the caller's transaction of the default database, as the transaction's last statement.

        The job ends exactly when that transaction commits. This is for a handler in a thread, which then returns `Done`
        as usual.

        Raises:
            NotOurs: This run no longer owns the job. Do not catch it, so that the transaction is rolled back.
        """
        self.end(result)

    def raise_if_cancelled(self) -> None:
        """End a synchronous handler whose job was cancelled or timed out; asynchronous ones end at an await."""
        if self.cancelled.is_set():
            raise JobCancelled


Answer = Done | Continue | None
CredentialFaults = Callable[[Any, "UsableCredential"], Mapping[str, str]]

# A function, async or not, of a running job or, if the kind coalesces, of a sequence of running jobs.
HandlerFunction = Callable[..., Any]


def check_answer(answer: object) -> None:
    """
    Raises:
        TypeError: A handler returned something else than an Answer.
    """
    if not isinstance(answer, Answer):
        raise TypeError(f"The handler returned a {type(answer).__name__}: return Done(result), Continue or nothing.")


@dataclass(frozen=True, slots=True)
class Handler:
    """A registered handler; see `handler` for the meaning of each attribute."""

    kind: str
    function: HandlerFunction
    service: str | Callable[[Any], str]
    call_type: CallType
    schema: TypeAdapter[Any]
    idempotent: bool | Callable[[Any], bool]
    sends_effect_key: bool
    timeout: timedelta
    retry: str
    cost: int | Callable[[Any], int | Cost]
    description: str
    is_async: bool
    credential: Callable[[Any], str | None] | None = None
    credential_faults: CredentialFaults | None = None
    only_in: Callable[[Any], str] | None = None
    model: Callable[[Any], str | None] | None = None
    target: Callable[[Any], str] | None = None
    coalesce: Coalesce | None = None
    user_turns: bool = False
    internal: bool = False
    calls_out: bool = True
    searchable: tuple[str, ...] = ()
    shown_first: tuple[str, ...] = ()
    batch: BatchForm | None = None
    most: Callable[[Any], Usage] | None = None
    fallback: Callable[[Any], Sequence[Fallback]] | None = None

    @property
    def payload_fields(self) -> Collection[str]:
        """The payload's field names as producers write them; empty if the payload is not one pydantic model."""
        fields = getattr(self.schema._type, "model_fields", {})  # noqa: SLF001 - no public way
        return [field.alias or name for name, field in fields.items()]

    def is_repeatable(self, payload: Any) -> bool:
        """Whether a call whose outcome is unknown may be made again without doubling its effect."""
        if self.sends_effect_key:
            return True
        return self.idempotent(payload) if callable(self.idempotent) else self.idempotent

    def service_of(self, payload: Any) -> str:
        """The external API that this payload's call goes to."""
        return self.service(payload) if callable(self.service) else self.service

    def estimated_cost(self, payload: Any) -> Cost:
        cost = self.cost(payload) if callable(self.cost) else self.cost
        return cost if isinstance(cost, Cost) else Cost(known=max(0, cost))


_handlers: dict[str, Handler] = {}
_aliases: dict[str, str] = {}
_closers: list[Callable[[], Awaitable[None]]] = []


def handler(
    *,
    kind: str,
    service: str | Callable[[Any], str],
    payload: Any,
    call_type: CallType = CallType.WRITE,
    idempotent: bool | Callable[[Any], bool] = False,
    sends_effect_key: bool = False,
    timeout: timedelta | float = DEFAULT_TIMEOUT,
    retry: str = "moderate",
    cost: int | Callable[[Any], int | Cost] = 1,
    credential: Callable[[Any], str | None] | None = None,
    credential_faults: CredentialFaults | None = None,
    only_in: Callable[[Any], str] | None = None,
    model: Callable[[Any], str | None] | None = None,
    target: Callable[[Any], str] | None = None,
    coalesce: Coalesce | None = None,
    user_turns: bool = False,
    internal: bool = False,
    calls_out: bool = True,
    searchable: tuple[str, ...] = (),
    shown_first: tuple[str, ...] = (),
    batch: BatchForm | None = None,
    most: Callable[[Any], Usage] | None = None,
    fallback: Callable[[Any], Sequence[Fallback]] | None = None,
    aliases: tuple[str, ...] = (),
) -> Callable[[F], F]:
    """
    Register a function, async or not, as the handler of one kind of job.

    Args:
        kind: Stored in rows, so rename it only by keeping the old name among `aliases`. Lower-case words with dots.
        service: The name of the external API that it calls, at most 64 characters, or a function of the payload. Limits
            and the outage breaker are kept by service.
        payload: A pydantic model or any type pydantic can validate; checked when a job is submitted and when it runs.
        idempotent: Whether repeating the call does no harm; may depend on the payload. Only such work is repeated
            when its outcome is unknown.
        sends_effect_key: The handler sends `job.effect_key` and the provider ignores repetitions of it.
        timeout: How long one attempt may take; a number means seconds.
        retry: Name of the RetryPolicy; a job may name another.
        cost: Estimated units or tokens of a call, or a function of the payload.
        credential: A function of the payload: the name of the Credential that its call uses, or None. The handler finds
            the decrypted credential in `job.credential`.
        credential_faults: A function of a payload and a credential: why the two do not fit together, by field of the
            payload. Without it the credential must be of the payload's service.
        only_in: A function of the payload: the only project whose jobs may have it. Without `only_in`, every project's
            jobs may.
        model: A function of the payload: the model that its call goes to, if the provider counts models apart.
        target: A function of the payload: the URL of its call, if the service has several addresses. The outage breaker
            tells addresses apart by scheme, host and port, and also the paths of one address. Without `target` it uses
            the credential's own address, if there is one, and the model.
        coalesce: How waiting jobs share one call. The function, which must be async, then takes a sequence of running
            jobs and returns one Done or exception for each; see also Poison and Bisect.
        user_turns: Whether the users of a project take turns even if no limit counts them.
        internal: Whether only QueueOps itself submits such jobs; jobs of producers are refused.
        calls_out: Whether the handler calls a service, so that missing answers mean an outage of the service. False:
            failures and timeouts are the handler's own.
        searchable: Fields of the payload by which its jobs can be found, such as `("order_id", "customer.email")`. Each
            value becomes a tag, `order_id=A-17`, if it is a text or a number; other values are left out.
        shown_first: Optional fields of the payload that the admin's form of a new job shows beside the required ones;
            the others are folded.
        batch: How jobs are sent by the provider's batch API, if their deadline allows it. The kind must also have
            `credential` and `model`, be idempotent or send its effect key, and not have `coalesce`.
        most: A function of the payload: the most that one call can use, which budgets reserve. Output None: as much as
            the model can bring. Without `most`, a job that its provider bills waits under a budget, or fails.
        fallback: A function of the payload: its fallbacks, in order; see jobs/handlers/fallback.py.

    Raises:
        ImproperlyConfigured: The kind already has a handler, or an option breaks its rule; see handler_options.py.
    """

    def register(function: F) -> F:
        registered = Handler(
            kind=kind,
            function=function,
            service=service,
            call_type=read_call_type(kind, call_type),
            schema=read_schema(kind, payload),
            idempotent=idempotent,
            sends_effect_key=sends_effect_key,
            timeout=read_timeout(kind, timeout),
            retry=retry,
            cost=cost,
            description=inspect.getdoc(function) or "",
            is_async=inspect.iscoroutinefunction(function),
            credential=credential,
            credential_faults=credential_faults,
            only_in=only_in,
            model=model,
            target=target,
            coalesce=coalesce,
            user_turns=user_turns,
            internal=internal,
            calls_out=calls_out,
            searchable=read_searchable(kind, searchable),
            shown_first=shown_first,
            batch=batch,
            most=most,
            fallback=fallback,
        )
        check_options(registered, aliases)
        for name in (kind, *aliases):
            if name in _handlers or name in _aliases:
                raise ImproperlyConfigured(f"kind {name!r} has two handlers")
        _handlers[kind] = registered
        _aliases.update(dict.fromkeys(aliases, kind))
        return function

    return register


def find_handler(kind: str) -> Handler:
    """
    Return the handler of a kind or of one of its former names.

    Raises:
        UnknownKind: No installed app registers it.
    """
    found = _handlers.get(kind) or _handlers.get(_aliases.get(kind, ""))
    if found is None:
        known = sorted(_handlers)
        told = f"No handler carries out {kind!r}.{nearest(kind, known)} Known: {', '.join(known)}."
        raise UnknownKind(told, kind=kind, known=known)
    return found


def served_names() -> dict[str, str]:
    """Every kind and former name, with the kind that carries it out."""
    return {**_aliases, **{kind: kind for kind in _handlers}}


def same_names() -> list[tuple[str, str]]:
    """All pairs of different names of one handler, so that records with a kind's former name are still found."""
    groups: dict[str, list[str]] = {}
    for name, kind in served_names().items():
        groups.setdefault(kind, []).append(name)
    return [pair for names in groups.values() for pair in permutations(names, 2)]


def all_handlers() -> list[Handler]:
    """Every handler, by kind."""
    return sorted(_handlers.values(), key=lambda registered: registered.kind)


def on_close(function: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
    """Register an async function that closes what handlers keep open on the running loop, such as connections."""
    _closers.append(function)
    return function


async def close_handlers() -> None:
    """Run the functions that `on_close` registered, whichever of them raises; the executor does so at its end."""
    for function in _closers:
        try:
            await function()
        except Exception:  # otherwise the executor would neither sign off nor end its process
            logger.exception("%s raised while handlers were closed", getattr(function, "__qualname__", function))


def load_handlers() -> None:
    """Import QueueOps's own handlers, and `<app>.handlers` of every installed app with all its modules."""
    for module in OWN_HANDLERS:
        importlib.import_module(f"jobs.handlers.{module}")
    for config in apps.get_app_configs():
        if config.name != "jobs" and module_has_submodule(config.module, "handlers"):
            found = importlib.import_module(f"{config.name}.handlers")
            for member in pkgutil.iter_modules(getattr(found, "__path__", ())):
                importlib.import_module(f"{found.__name__}.{member.name}")
