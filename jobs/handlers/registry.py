"""Handlers: the code that carries out one kind of job, declared with `@handler`."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Generic, TypeVar
from uuid import UUID

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import module_has_submodule
from pydantic import TypeAdapter

from jobs.states import CallType
from queueops.core.errors import QueueOpsError

P = TypeVar("P")

KIND_RULE = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)*\Z")
MAX_KIND_LENGTH = 100
DEFAULT_TIMEOUT = timedelta(seconds=60)


class UnknownKind(QueueOpsError):
    """No handler carries out this kind of job."""

    code = "unknown_kind"
    status = 422
    detail_fields = ("kind", "known")


class JobCancelled(Exception):
    """Raised inside a synchronous handler by `job.raise_if_cancelled()`."""


@dataclass(frozen=True, slots=True)
class Done:
    """
    What a handler returns when its job succeeded.

    Attributes:
        result: JSON-able; kept with the job.
        cost: The units or tokens really used, where the estimate was only that.
    """

    result: Any = None
    cost: int | None = None


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
    cancelled: threading.Event = field(default_factory=threading.Event, repr=False)

    def progress(self, percent: int, message: str = "") -> None:
        """
        Report progress; cheap, and may be called often: only the latest report of about a second is stored.

        Args:
            percent: 0 to 100; values outside are clipped.
            message: At most 500 characters; the rest is cut.
        """
        self.report(min(100, max(0, int(percent))), message[:500])

    def raise_if_cancelled(self) -> None:
        """End a synchronous handler whose job was cancelled or timed out; asynchronous ones end at an await."""
        if self.cancelled.is_set():
            raise JobCancelled


HandlerFunction = Callable[[RunningJob[Any]], Awaitable[Done | None] | Done | None]


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
    cost: int | Callable[[Any], int]
    description: str
    is_async: bool

    def is_repeatable(self, payload: Any) -> bool:
        """Whether a call whose outcome is unknown may be made again without doubling its effect."""
        if self.sends_effect_key:
            return True
        return self.idempotent(payload) if callable(self.idempotent) else self.idempotent

    def service_of(self, payload: Any) -> str:
        """The external API that this payload's call goes to."""
        return self.service(payload) if callable(self.service) else self.service

    def estimated_cost(self, payload: Any) -> int:
        return max(0, self.cost(payload)) if callable(self.cost) else self.cost


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
    timeout: timedelta = DEFAULT_TIMEOUT,
    retry: str = "moderate",
    cost: int | Callable[[Any], int] = 1,
    aliases: tuple[str, ...] = (),
) -> Callable[[HandlerFunction], HandlerFunction]:
    """
    Register a function, async or not, as the handler of one kind of job.

    Args:
        kind: Stored in rows, so rename it only by keeping the old name among `aliases`. Lower-case words with dots.
        service: The external API it calls, at most 64 characters, or a function of the payload; limits and the outage
            breaker go by it.
        payload: A pydantic model or any type pydantic can validate; checked when a job is submitted and when it runs.
        idempotent: Whether repeating the call does no harm; may depend on the payload. Only such work is repeated
            when its outcome is unknown.
        sends_effect_key: The handler sends `job.effect_key` and the provider ignores repetitions of it.
        timeout: Of one attempt.
        retry: Name of the RetryPolicy; a job may name another.
        cost: Estimated units or tokens of a call, or a function of the payload.

    Raises:
        ImproperlyConfigured: The kind is malformed or taken.
    """

    def register(function: HandlerFunction) -> HandlerFunction:
        registered = Handler(
            kind=kind,
            function=function,
            service=service,
            call_type=call_type,
            schema=TypeAdapter(payload),
            idempotent=idempotent,
            sends_effect_key=sends_effect_key,
            timeout=timeout,
            retry=retry,
            cost=cost,
            description=inspect.getdoc(function) or "",
            is_async=inspect.iscoroutinefunction(function),
        )
        for name in (kind, *aliases):
            if not KIND_RULE.match(name) or len(name) > MAX_KIND_LENGTH:
                raise ImproperlyConfigured(f"kind {name!r}: use lower-case words joined by dots, 100 letters at most")
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
        raise UnknownKind(f"No handler carries out {kind!r}. Known: {', '.join(known)}.", kind=kind, known=known)
    return found


def all_handlers() -> list[Handler]:
    """Every handler, by kind."""
    return sorted(_handlers.values(), key=lambda registered: registered.kind)


def on_close(function: Callable[[], Awaitable[None]]) -> Callable[[], Awaitable[None]]:
    """Register an async function that closes what handlers keep open on the running loop, such as connections."""
    _closers.append(function)
    return function


async def close_handlers() -> None:
    """Run what `on_close` registered; the executor does so when its loop ends."""
    for function in _closers:
        await function()


def load_handlers() -> None:
    """Import `<app>.handlers` of every installed app, with its modules where it is a package, and our own."""
    for module in ("http", "webhook", "django_task"):
        importlib.import_module(f"jobs.handlers.{module}")
    for config in apps.get_app_configs():
        if config.name != "jobs" and module_has_submodule(config.module, "handlers"):
            found = importlib.import_module(f"{config.name}.handlers")
            for member in pkgutil.iter_modules(getattr(found, "__path__", ())):
                importlib.import_module(f"{found.__name__}.{member.name}")
