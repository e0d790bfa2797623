"""The rules for the options of `@handler`: a wrong option keeps the process from starting; the error names the rule."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from django.core.exceptions import ImproperlyConfigured
from pydantic import TypeAdapter

from jobs.handlers.batch_form import BatchForm
from jobs.states import CallType
from queueops.core.values.tags import MAX_TAGS

if TYPE_CHECKING:
    from jobs.handlers.registry import Handler

KIND_RULE = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)*\Z")
FIELD_RULE = re.compile(r"\w{1,40}(\.\w{1,40}){0,3}\Z", re.ASCII)
MAX_KIND_LENGTH = 100
MAX_SERVICE_LENGTH = 64
MAX_RETRY_LENGTH = 40
MAX_TIMEOUT = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Coalesce:
    """
    Waiting jobs of one key leave as one call: one unit of quota, one slot, one cost.

    The handler reports the call's usage with one of its jobs, or divides it among them: the tokens are added up.

    Attributes:
        key: A function of the payload: everything that must be equal for one call, such as the spreadsheet and its
            options. The kind, project, user and credential must be equal anyway. None: the job leaves alone.
        max_items: How many jobs one call takes at most.
        max_bytes: How many bytes the payloads of one call have at most.
        counts_each: Whether the call costs the tokens of each of its jobs, so that token limits must admit them all.
            False: the call costs as much as one job, however many jobs share it.
    """

    key: Callable[[Any], str | None]
    max_items: int = 500
    max_bytes: int = 2_000_000
    counts_each: bool = False


def read_timeout(kind: str, given: object) -> timedelta:
    """
    Raises:
        ImproperlyConfigured
    """
    try:
        found = given if isinstance(given, timedelta) else timedelta(seconds=_number(given))
    except (TypeError, ValueError, OverflowError):
        found = timedelta(0)
    if not timedelta(0) < found <= MAX_TIMEOUT:
        raise _wrong(kind, "timeout", given, "a timedelta or a number of seconds, above 0 and at most 7 days")
    return found


def read_call_type(kind: str, given: Any) -> CallType:
    """
    Raises:
        ImproperlyConfigured
    """
    try:
        return CallType(given)
    except ValueError:
        raise _wrong(kind, "call_type", given, "CallType.READ or CallType.WRITE") from None


def read_schema(kind: str, given: Any) -> TypeAdapter[Any]:
    """
    Raises:
        ImproperlyConfigured
    """
    try:
        return TypeAdapter(given)
    except Exception as error:  # pydantic raises many kinds, some of them Python's own
        raise _wrong(kind, "payload", given, f"a type that pydantic can validate ({error})") from error


def read_searchable(kind: str, given: Any) -> tuple[str, ...]:
    """
    Raises:
        ImproperlyConfigured
    """
    if (
        isinstance(given, tuple | list)
        and len(given) <= MAX_TAGS
        and all(isinstance(field, str) and FIELD_RULE.match(field) for field in given)
    ):
        return tuple(given)
    raise _wrong(kind, "searchable", given, f"a tuple of at most {MAX_TAGS} fields such as 'customer.id'")


def check_options(handler: Handler, aliases: object) -> None:
    """
    Raises:
        ImproperlyConfigured: An option breaks its rule; the error names both.
    """
    kind = handler.kind

    def must(option: str, given: object, rule: str, *, hold: bool) -> None:
        if not hold:
            raise _wrong(kind, option, given, rule)

    if not isinstance(aliases, tuple | list):
        raise _wrong(kind, "aliases", aliases, "a tuple of former kinds")
    for name in (kind, *aliases):
        if not isinstance(name, str) or not KIND_RULE.match(name) or len(name) > MAX_KIND_LENGTH:
            raise ImproperlyConfigured(f"kind {name!r}: use lower-case words joined by dots, 100 letters at most")
    function, service, cost = handler.function, handler.service, handler.cost
    must("function", function, "a function of one argument, the job", hold=_takes_one(function))
    must(
        "function",
        function,
        "no generator: it returns Done",
        hold=not (inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)),
    )
    named = _is_name(service, MAX_SERVICE_LENGTH)
    must(
        "service",
        service,
        "a name of at most 64 characters, or a function of the payload",
        hold=named or callable(service),
    )
    is_flag = isinstance(handler.idempotent, bool) or callable(handler.idempotent)
    must("idempotent", handler.idempotent, "True, False or a function of the payload", hold=is_flag)
    for option in ("sends_effect_key", "user_turns", "internal"):
        must(option, getattr(handler, option), "True or False", hold=isinstance(getattr(handler, option), bool))
    for option in ("credential", "credential_faults", "only_in", "model", "fallback"):
        given = getattr(handler, option)
        must(option, given, "a function of the payload, or None", hold=given is None or callable(given))
    shown: object = handler.shown_first
    known = handler.payload_fields
    are_fields = isinstance(shown, tuple) and all(name in known for name in shown)
    must("shown_first", shown, "a tuple of fields of the payload", hold=are_fields)
    must("retry", handler.retry, "the name of a RetryPolicy", hold=_is_name(handler.retry, MAX_RETRY_LENGTH))
    counted = type(cost) is int and cost >= 0
    must("cost", cost, "a whole number from 0, or a function of the payload", hold=counted or callable(cost))
    _check_coalescing(handler, must)
    _check_batch(handler, must)


def _check_coalescing(handler: Handler, must: Callable[..., None]) -> None:
    coalesce = handler.coalesce
    if coalesce is None:
        return
    must("coalesce", coalesce, "a Coalesce, or None", hold=isinstance(coalesce, Coalesce))
    must("coalesce.key", coalesce.key, "a function of the payload", hold=callable(coalesce.key))
    for option in ("max_items", "max_bytes"):
        given = getattr(coalesce, option)
        must(f"coalesce.{option}", given, "a whole number from 1", hold=type(given) is int and given >= 1)
    if not handler.is_async:
        raise ImproperlyConfigured(f"kind {handler.kind!r}: a coalescing handler is an async function")


def _check_batch(handler: Handler, must: Callable[..., None]) -> None:
    if handler.batch is None:
        return
    must("batch", handler.batch, "a BatchForm, or None", hold=isinstance(handler.batch, BatchForm))
    for option in ("credential", "model"):
        given = getattr(handler, option)
        must(option, given, "a function of the payload: batches are of one credential and model", hold=callable(given))
    # If a provider batch is lost, its lines are sent again.
    is_repeatable = handler.sends_effect_key or handler.idempotent is not False
    must("idempotent", handler.idempotent, "True, or a function of the payload, with a batch form", hold=is_repeatable)
    must("coalesce", handler.coalesce, "None with a batch form", hold=handler.coalesce is None)


def _takes_one(function: object) -> bool:
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return False
    except ValueError:  # a built-in function without a readable signature
        return True
    return True


def _is_name(given: object, most: int) -> bool:
    return isinstance(given, str) and 0 < len(given) <= most


def _number(given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise TypeError
    return given


def _wrong(kind: object, option: str, given: object, rule: str) -> ImproperlyConfigured:
    return ImproperlyConfigured(f"kind {kind!r}: {option}={given!r} is not {rule}")
