"""Handlers: the code that carries out one kind of job, declared with `@handler`."""

from __future__ import annotations

import importlib
import inspect
import json
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
        cost: The units or tokens really used, where the estimate was only that.
        known_cost: The part of `cost` that had been taken for known, such as input tokens: the limits learn from it how
            wrong such estimates are.
        usage: The real use by unit; where no cost is given, its tokens are the cost.
    """

    result: Any = None
    cost: int | None = None
    known_cost: int | None = None
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class Continue:
    """
    A handler's answer when its job takes more calls: the job is given back, and no attempt is spent.

    Claimed again, it passes the limits again and finds `partial` in `job.partial`.

    Attributes:
        partial: JSON-able; stored with the job in place of its result.
        cost, usage: As in Done, of the call just made.
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
        unknown: The guess at the rest, such as output tokens: learned from earlier calls where there are some.
        units: Its amounts by unit, where limits count more than one figure: `{"input_tokens": 900, "output_tokens":
            400}`. Output tokens are the most there can be: learned from earlier calls where there are some.
        is_bound: `unknown`, and the output of `units`, are the most there can be. False: figures learned from earlier
            calls may be higher.
        told_output: The most output tokens that the call tells its provider to bring; None: it tells none.
        calls: How many such calls the job takes, one after the other, as it says with Continue. The other figures are
            those of the largest call; `units` may have the input tokens of all calls as `input_of_calls`.
    """

    known: int
    unknown: int = 0
    units: Mapping[str, int] = field(default_factory=dict)
    is_bound: bool = True
    told_output: int | None = None
    calls: int = 1


class Poison(Exception):
    """
    Raised by a coalescing handler: nothing was applied because of some of its jobs; the others are to be sent again.

    Args:
        errors: What each of those fails with, by its place in the sequence; at least one.
    """

    def __init__(self, errors: Mapping[int, ProviderError]) -> None:
        super().__init__("; ".join(str(error) for error in errors.values()))
        self.errors = errors


class Bisect(Exception):
    """Raised by a coalescing handler: nothing was applied, and nobody knows because of which of its jobs."""


@dataclass(frozen=True, slots=True)
class EndedBatch:
    """
    A batch, as its callback is told of it.

    Attributes:
        counts: Its items by state when the callback was let go; a requeued item counts once, as its latest job.
        verdict: How it ended, in the word that every page shows; None: it has not ended.
    """

    batch: UUID
    name: str
    counts: Mapping[str, int]

    @classmethod
    def read(cls, text: str | None) -> EndedBatch | None:
        """Read the column of its job, which is JSON text."""
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
    """A job in its handler's hands."""

    id: UUID
    payload: P
    project: str
    user_id: UUID | None
    effect_key: str  # send it to the provider, if it takes such a key: it stays the same over retries and requeues
    attempt: int  # 1 for the first
    report: Callable[[int, str], None] = field(repr=False)
    cost: int = 1  # as estimated when it was submitted
    credential: OpenCredential | None = field(default=None, repr=False)
    partial: Any = None  # of the last Continue
    fallback_step: int = 0  # the other way that it goes; its payload is that way's already
    fallback_reason: str = ""
    payload_text: str = field(
        default="", repr=False
    )  # as its producer wrote it: JSON, the first way's; empty: not known
    ended_batch: EndedBatch | None = None  # for a job that a batch names in on_finish
    say: Callable[[str, str], None] = field(default=lambda level, text: None, repr=False)
    end: Callable[[Any], None] = field(default=lambda result: None, repr=False)
    _cancelled: threading.Event | None = field(default=None, init=False, repr=False)

    @property
    def cancelled(self) -> threading.Event:
        """Set when nobody wants the job any more or its time is over. Made when first asked for: few handlers do."""
        if self._cancelled is None:
            with _ONE_EVENT:  # a handler's thread and the loop's may ask at once
                if self._cancelled is None:
                    self._cancelled = threading.Event()
        return self._cancelled

    def log(self, text: str, level: str = "INFO") -> None:
        """
        Keep a line with this attempt: it stands on the job's page and with its dead letter, for people alone.

        Lines of the handler's own loggers stand there, too, if the installation's log level lets them through. The
        first 10 and the last 40 lines of an attempt are kept, 300 characters of each, secrets masked.
        """
        self.say(level, str(text))

    def progress(self, percent: int, message: str = "") -> None:
        """
        Report progress; cheap, and may be called often: only the latest report of about a second is stored.

        Args:
            percent: 0 to 100; values outside are clipped.
            message: At most 500 characters; the rest is cut.
        """
        self.report(min(100, max(0, int(percent))), message[:500])

    def complete(self, result: Any = None) -> None:
        """
        Complete the job in the caller's transaction of the default database, as its last statement.

        The job has ended exactly when that commits. This is for a handler in a thread, which then returns `Done` as
        ever.

        Raises:
            NotOurs: Let it through, so that the transaction is rolled back.
        """
        self.end(result)

    def raise_if_cancelled(self) -> None:
        """End a synchronous handler whose job was cancelled or timed out; asynchronous ones end at an await."""
        if self.cancelled.is_set():
            raise JobCancelled


Answer = Done | Continue | None
CredentialFaults = Callable[[Any, "UsableCredential"], Mapping[str, str]]
# A function of one running job, or of a sequence of them where the kind coalesces; async or not.
HandlerFunction = Callable[..., Any]


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
        """The names of its payload's fields as producers write them, if one model has them all."""
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
        service: The external API it calls, at most 64 characters, or a function of the payload; limits go by it, and
            the outage breaker too.
        payload: A pydantic model or any type pydantic can validate; checked when a job is submitted and when it runs.
        idempotent: Whether repeating the call does no harm; may depend on the payload. Only such work is repeated
            when its outcome is unknown.
        sends_effect_key: The handler sends `job.effect_key` and the provider ignores repetitions of it.
        timeout: Of one attempt; a number means seconds.
        retry: Name of the RetryPolicy; a job may name another.
        cost: Estimated units or tokens of a call, or a function of the payload.
        credential: Names the Credential that a payload's call shows, or None; the handler finds it opened in
            `job.credential`.
        credential_faults: The fields of a payload that keep it from going with a credential that its project may use,
            and why. Without it the credential must be of the payload's service.
        only_in: Names the one project whose jobs may have a payload; without it, those of every project.
        model: Names the model that a payload's call goes to, where the provider counts models apart.
        target: The URL that a payload's call goes to, where the service has several addresses: the outage breaker tells
            them apart by scheme, host and port, and their paths. Without it they are told apart by the credential's
            own address, where it has one, and by the model.
        coalesce: Waiting jobs leave together. The function, which must be async, then takes a sequence of running
            jobs and returns one Done or exception for each; see also Poison and Bisect.
        user_turns: The users of a project take turns, also where no limit counts them.
        internal: Only the platform itself submits such jobs; those of producers are refused.
        calls_out: It calls a service whose silence is an outage. False: its failures and timeouts are its own.
        searchable: Fields of the payload that its jobs are found by, such as `("order_id", "customer.email")`: the
            value becomes a tag, `order_id=A-17`. Texts and numbers; others are left out.
        shown_first: Optional fields of the payload that the admin's form of a new job shows beside the required ones;
            the others are folded.
        batch: How its jobs go by a batch API of the provider, where their deadline allows it. The kind must name a
            credential and a model, be repeatable and leave alone.
        most: The most that one call of a payload can use, never less: what budgets hold for it. Output None: as much as
            its model can bring. Without it, where its provider bills, a job waits under a budget, or fails.
        fallback: The other ways that a payload names to do its work, in order: see jobs/handlers/fallback.py.

    Raises:
        ImproperlyConfigured: The kind is taken, or an option is not what it has to be; see handler_options.py.
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
    """Each kind or former name with each other name of the same handler, for records of kinds that outlive them."""
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
    """Run the functions that `on_close` registered; the executor does so when its loop ends."""
    for function in _closers:
        await function()


def load_handlers() -> None:
    """Import `<app>.handlers` of every installed app, with its modules where it is a package, and our own."""
    for module in OWN_HANDLERS:
        importlib.import_module(f"jobs.handlers.{module}")
    for config in apps.get_app_configs():
        if config.name != "jobs" and module_has_submodule(config.module, "handlers"):
            found = importlib.import_module(f"{config.name}.handlers")
            for member in pkgutil.iter_modules(getattr(found, "__path__", ())):
                importlib.import_module(f"{found.__name__}.{member.name}")
