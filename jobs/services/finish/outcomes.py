"""How a running job ended: what its handler or its executor says of it, before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobs.classify import Failure
from ratelimits.costs import Usage
from ratelimits.rate_headers import StatedQuota

from .claimed import ClaimedJob

GIVE_BACK_SECONDS = 0.0
COOLED_SECONDS = 1.0  # the job's counters cool down: it waits on in its lane, where the retry window stands still
UNCOOLED_SECONDS = 60.0

# The answers to a job's calls: (status, bytes), a status of 0 where no answer came.
Calls = Sequence[tuple[int, int]]
MAX_CALLS_LOGGED = 100  # of one outcome, kept in the log
# The lines that its handler logged: milliseconds since it began, level, text. Masked and bounded, see
# executor/attempt_log.py.
Lines = Sequence[tuple[int, str, str]]


@dataclass(slots=True)  # not frozen: making a frozen one costs more than all else that a success costs here
class Succeeded:
    """
    `result`: JSON text or None. `cost`: its real cost, and `known_cost` that of its known part; None: the handler does
    not know. `usage`: the same by unit. `stated`: quotas that the provider stated. `via`: the way it went, `live` or
    `batch`. `duration_ms`: None by batch, where nobody knows. `stored`: its handler has completed it, in the
    transaction of its effect.
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
    `retry`: the handler's retry policy. `repeatable`: doing it twice does no harm. `wait_seconds`: before it goes again
    after a quota was refused. `cost`: what the call cost; None: as estimated. `usage`: by unit, where it is known.
    `stated`: quotas that the provider stated. `via`: as in a success.
    """

    job: ClaimedJob
    service: str  # empty: it blames none, as the handler or the payload is not known, or calls nobody
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
    The job is to run again, and the attempt does not count: its executor stops, or it takes more calls.

    Attributes:
        partial: JSON text for the next run; None: as it was.
        cost, usage: The call's real cost, where one was made and the handler knows.
        stated: Quotas that the provider stated.
        coalesce_key: The key by which it leaves with others next; None: as it was.
        misfit: This process's handler does not take its payload: it waits for one that does.
        closed: Its payload is encrypted with a key that this process does not have: it waits for one that does.
        wait_seconds: Until it may run.
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
