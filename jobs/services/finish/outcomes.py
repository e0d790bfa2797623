"""How a running job ended, as its handler or its executor reports it, before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.classify import Failure
from ratelimits.costs import Usage
from ratelimits.rate_headers import StatedQuota

from .claimed import ClaimedJob

GIVE_BACK_SECONDS = 0.0
COOLED_SECONDS = 1.0  # if counters cool down: the job then waits in its lane, outside its retry window
UNCOOLED_SECONDS = 60.0

# The answers to a job's calls: (status, bytes), a status of 0 where no answer came.
Calls = Sequence[tuple[int, int]]
MAX_CALLS_LOGGED = 100  # calls of one outcome, kept in the log
# The lines that the handler logged: milliseconds since it began, level, text. Masked and bounded, see
# executor/attempt_log.py.
Lines = Sequence[tuple[int, str, str]]


@dataclass(slots=True)  # not frozen: making a frozen object takes longer than all else here for a success
class Succeeded:
    """
    `result`: JSON text or None. `cost`: the call's real cost. `known_cost`: the real cost of the part that was known
    before the call. `usage`: the real amounts by unit. None: the handler does not know them. `stated`: quotas that the
    provider stated. `via`: the delivery, `live` or `batch`. `duration_ms`: None for `batch`, where it is unknown.
    `stored`: the handler has completed the job, in the transaction of its effect.
    """

    job: ClaimedJob
    service: str
    result: str | None
    duration_ms: float | None
    cost: int | None = None
    calls: Calls = ()
    known_cost: int | None = None
    log: Lines = ()
    usage: Usage | None = None
    stated: tuple[StatedQuota, ...] = ()
    via: str = "live"
    stored: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    """
    `retry`: the handler's retry policy. `repeatable`: doing the job twice does no harm. `wait_seconds`: the
    delay after a provider's refusal because of a quota. `cost`: the call's real cost; None: as estimated. `usage`: the
    real amounts by unit, if known. `stated`: quotas that the provider stated. `via`: as in a success.
    """

    job: ClaimedJob
    service: str  # empty: no service is to blame, or the handler is unknown or calls none
    retry: str
    repeatable: bool
    failure: Failure
    duration_ms: float | None
    calls: Calls = ()
    wait_seconds: float = UNCOOLED_SECONDS
    cost: int | None = None
    log: Lines = ()
    usage: Usage | None = None
    stated: tuple[StatedQuota, ...] = ()
    via: str = "live"


@dataclass(frozen=True, slots=True)
class GivenBack:
    """
    The job is to run again, and the attempt does not count: its executor stops, or the job takes more calls.

    Attributes:
        partial: The result so far for the next run, as JSON text; None: unchanged.
        cost, usage: The call's real cost, if a call was made and the handler knows its cost.
        stated: Quotas that the provider stated.
        coalesce_key: The key by which it leaves with others next; None: unchanged.
        misfit: This process's handler does not take the payload: the job waits for a worker whose handler does.
        closed: The payload is encrypted with a key that this process lacks: the job waits for a worker with that key.
        wait_seconds: Seconds until the job may run.
    """

    job: ClaimedJob
    reason: str
    partial: str | None = None
    cost: int | None = None
    coalesce_key: str | None = None
    calls: Calls = ()
    misfit: bool = False
    closed: bool = False
    log: Lines = ()
    usage: Usage | None = None
    stated: tuple[StatedQuota, ...] = ()
    wait_seconds: float = GIVE_BACK_SECONDS
    via: str = "live"


@dataclass(frozen=True, slots=True)
class Progress:
    job: ClaimedJob
    percent: int
    message: str


Outcome = Succeeded | Failed | GivenBack
