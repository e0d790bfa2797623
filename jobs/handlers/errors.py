"""The error that a handler raises when its call to a provider did not succeed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal

from queueops.core.outbound.client import OutboundFailed, OutboundResponse
from queueops.core.outbound.policy import OutboundRefused
from queueops.core.values.retry_after import told_delay

if TYPE_CHECKING:
    from ratelimits.costs import Usage
    from ratelimits.feedback import PushBack

SHOULD_RETRY = "should_retry"
# Codes of answers that are not what was asked for: the model or its provider will not answer, or no answer fits.
ANSWER_BLOCKED, SCHEMA_MISMATCH = "answer_blocked", "schema_mismatch"
MAX_LEAVES = 3  # errors of a group that its message names

Outcome = Literal["not_sent", "refused", "answered", "unknown"]

Used = tuple["int | None", "Usage | None"]
"""A call's cost and usage, as `Done` has them. None: the provider did not state the figure."""

UNTOLD: Used = (None, None)


class ProviderError(Exception):
    """
    One failed attempt. Whether it is retried follows from `status` and `outcome`.

    No argument may hold a secret: all of them are stored with the job and shown to operators.

    Args:
        status: The provider's HTTP status; None when it gave none.
        message: One sentence for an operator.
        code: Stable name of the failure, `lower_snake_case`.
        retry_after: Seconds the provider asked us to wait, already validated.
        outcome: `not_sent`: nothing left this machine (name not found, connection refused or
            timed out). `refused`: we did not send it and never shall (the target is not
            allowed); repeating cannot help. `answered`: the provider gave `status`.
            `unknown`: sent, but no complete answer came; the effect may have been applied.
        details: JSON-able facts for the dead letter.
        push_back: The quota that the provider says was exceeded. If None, it is read from the answer, if the status may
            mean a quota. After an exceeded quota, the job is given back without spending an attempt, and the quota's
            counters cool down.
        repeat: Whether another attempt may help, if the handler knows better than `status` and `outcome` say. The
            error then concerns no quota, and only the retry policy says when.
        used: The cost and usage of a call that was answered: it is paid for although the attempt failed.
    """

    def __init__(
        self,
        status: int | None,
        message: str,
        *,
        code: str,
        retry_after: float | None = None,
        outcome: Outcome,
        details: Mapping[str, Any] | None = None,
        push_back: PushBack | None = None,
        repeat: bool | None = None,
        used: Used = UNTOLD,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.retry_after = retry_after
        self.outcome: Outcome = outcome
        self.details: dict[str, Any] = dict(details or {})
        self.push_back = push_back
        self.repeat = repeat
        self.used = used


class TimeLimitPassed(TimeoutError):
    """The time limit that we set for a call passed; any other TimeoutError was raised by the handler's own code."""


@asynccontextmanager
async def time_limit(seconds: float) -> AsyncIterator[None]:
    """
    Raises:
        TimeLimitPassed: The block took longer and was interrupted.
    """
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError as error:
        if limit.expired():
            raise TimeLimitPassed from error
        raise


def alone_in(error: BaseException, *, repeatable: bool) -> BaseException:
    """
    Return the only error of an exception group, as asyncio.TaskGroup wraps what its tasks raise; else the error itself.

    A group's ProviderError stays wrapped unless the work is repeatable: the group interrupted its other calls, and
    nobody saw their ends.
    """
    inner = error
    while isinstance(inner, BaseExceptionGroup) and len(inner.exceptions) == 1:
        [inner] = inner.exceptions
    return error if isinstance(inner, ProviderError) and not repeatable else inner


def words_of(error: BaseException) -> str:
    """Return the class and message of an exception; of an exception group, also those of its first errors."""
    words = f"{type(error).__name__}: {error}"
    if isinstance(error, BaseExceptionGroup):
        words += "; ".join(["", *(words_of(inner) for inner in error.exceptions[:MAX_LEAVES])])
    return words


def unanswered(error: OutboundRefused | OutboundFailed) -> ProviderError:
    """Return the job's error for a call without a complete answer."""
    if isinstance(error, OutboundRefused):
        return ProviderError(None, error.message, code=error.code, outcome="refused")
    told = error.details
    return ProviderError(told.get("answered_status"), error.message, code=told["reason"], outcome=told["outcome"])


def asks_again(response: OutboundResponse) -> dict[str, Any]:
    """Return the details of a failure: `should_retry` if the answer's headers say whether to, whatever its status."""
    names = ("x-should-retry", "stripe-should-retry")
    told = next((response.headers[name] for name in names if name in response.headers), "").strip().lower()
    return {SHOULD_RETRY: told == "true"} if told in ("true", "false") else {}


def retry_after_of(response: OutboundResponse, push_back: PushBack | None = None) -> float | None:
    """Return the seconds that a provider asked us to wait; for a refused quota, from any part of the answer."""
    if push_back is not None:
        return push_back.retry_after
    return told_delay(response.headers)
