"""
Sends jobs another way: to the next model or provider that their payload names.

One guarded statement moves waiting jobs; a job that is under way is given back first. The payload does not change:
`fallback_step` tells the handler which of the payload's ways to take.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from django.db import DatabaseError, transaction

from jobs.classify import Failure, is_outage, is_retryable
from jobs.features.fallback.ways import UnreadHere, WayColumns, as_text, columns_of, kinds_with_ways, shown, ways_of
from jobs.handlers.fallback import CONTEXT_TOO_LONG, CREDIT_GONE, NO_QUOTA, Condition, Fallback, next_way
from jobs.handlers.registry import Handler
from jobs.models import Job
from jobs.services.finish.claimed import ClaimedJob
from jobs.services.submit.prepare import watched
from jobs.states import JobState
from jobs.transitions import Move, move_jobs
from queueops.core.notify import Channel, notify
from queueops.core.sealing import SealedAway, open_json
from queueops.core.sql import nullable, plain_array, run_sql

logger = logging.getLogger(__name__)

REROUTED_AT_ONCE = 200
REROUTE_SECONDS = 1.0  # an executor claims nothing meanwhile
LEFT_SECONDS = 60.0  # after this, a host tries again the jobs that it has left to others
MAX_LEFT_TO_OTHERS = 20_000  # jobs that a round leaves out; each of its statements names them all
LAST_BYTES = 256  # the values of an id's last byte
RESTS_TIMES = 20  # how much longer than a round that sent few jobs the rest after it is
MAX_REROUTE_REST_SECONDS = 30.0
WORDS: dict[Condition, str] = {
    "rate_limited": "it waited {waited:,.0f} s for a limit",
    "unavailable": "what it called does not answer",
    "context_too_long": "its input is too long for the model",
    "no_credit": "the account has no credit",
}


class StoodAs(NamedTuple):
    """A job's owner, and what the job called before. `waited`: seconds since the job became eligible to run."""

    project: str
    user: UUID | None
    service: str
    model: str | None
    credential: str | None
    waited: float


class Reroute(NamedTuple):
    """One job that goes another way."""

    job: UUID
    reason: Condition
    ways: Sequence[Fallback]
    at_step: int
    to_step: int
    to: WayColumns
    stood: StoodAs


class WaitsForWay(NamedTuple):
    """A row of choose_reroutes.sql."""

    id: UUID
    reason: Condition
    kind: str
    payload: str
    fallback_step: int
    project: str
    user: UUID | None
    service: str
    model: str | None
    credential: str | None
    waited: float


class SentOn(NamedTuple):
    """
    Attributes:
        going: The jobs that have another way for their reason.
        unread: Jobs whose payload cannot be read here, each with why.
        moved: How many went on; others have left meanwhile.
    """

    going: set[UUID]
    unread: dict[UUID, str]
    moved: int


class IdPart(NamedTuple):
    """
    A part of all jobs: those whose ids end with one of `width` bytes, `first` being the lowest.

    A host that must leave more than MAX_LEFT_TO_OTHERS jobs to others looks at one part after another. Otherwise it
    would find the same ones again and again, and never the jobs behind them.
    """

    first: int
    width: int

    def next(self, left: int) -> IdPart:
        """Return the part to look at after this one, in which so many jobs were left to others."""
        if left > MAX_LEFT_TO_OTHERS and self.width > 1:
            return IdPart(self.first, self.width // 2)  # it was not looked at to its end
        width = 2 * self.width if left < MAX_LEFT_TO_OTHERS / 4 else self.width
        first = (self.first + self.width) % LAST_BYTES
        return IdPart(first, min(width, LAST_BYTES - first))


ALL_JOBS = IdPart(0, LAST_BYTES)


class FallbackRounds:
    """
    Sends jobs on, at each cluster: a job whose payload one host cannot read is left to another.

    The rounds share no duty, whose holder may be the one host that cannot read a job. Each skips rows that another has
    locked.
    """

    def __init__(self, executor: UUID, _: object = None) -> None:
        self._left: set[UUID] = set()
        self._left_until = self._rests_until = 0.0
        self._part = ALL_JOBS

    def do(self, now: float) -> None:
        if now < self._rests_until:
            return
        # A handler's fault may pass: without another try, the job would never go on where there is one host alone.
        if now >= self._left_until or len(self._left) > MAX_LEFT_TO_OTHERS:
            self._part = self._part.next(len(self._left))
            self._left, self._left_until = set(), now + LEFT_SECONDS
        began = time.monotonic()
        if reroute_waiting(self._left, self._part) < REROUTED_AT_ONCE:
            # The round may have walked past many jobs of kinds that only other hosts know.
            rest = RESTS_TIMES * (time.monotonic() - began)
            self._rests_until = now + min(rest, MAX_REROUTE_REST_SECONDS)

    def stop(self) -> None:
        """Do nothing: no round leaves anything running."""


def reroute_waiting(left: set[UUID] | None = None, part: IdPart = ALL_JOBS) -> int:
    """
    Send jobs another way if they waited too long for a limit or their target is out; a bounded number at once.

    Args:
        left: Jobs to leave to other hosts. A job whose payload cannot be read here is added: otherwise each call would
            choose it again.
        part: The jobs among which to look.

    Returns:
        How many went on. The next call takes the jobs that remain after REROUTE_SECONDS.
    """
    left = set() if left is None else left
    total, found, until = 0, REROUTED_AT_ONCE, time.monotonic() + REROUTE_SECONDS
    while found >= REROUTED_AT_ONCE and len(left) <= MAX_LEFT_TO_OTHERS and time.monotonic() < until:
        with transaction.atomic():
            rows = _chosen(left, part)
            found = len(rows)
            sent = reroute(rows)
            stuck = {row.id for row in rows} - sent.going - sent.unread.keys()
            if stuck:  # their payloads name no way for this reason: each call would choose them again
                Job.objects.filter(pk__in=stuck).update(fallback_at=None, fallback_on_outage=False)
        total += sent.moved
        left.update(sent.unread)
        if sent.unread:
            job, why = next(iter(sent.unread.items()))
            words = "jobs are left to a host that can send them another way: %s, the first is %s: %s"
            logger.warning(words, len(sent.unread), job, why)
    return total


def _chosen(left: Collection[UUID], part: IdPart) -> list[WaitsForWay]:
    parameters = {"most": REROUTED_AT_ONCE, "kinds": kinds_with_ways(), "left": list(left), **part._asdict()}
    return [WaitsForWay(*row) for row in run_sql("jobs", "choose_reroutes", parameters)]


def reroute(rows: Sequence[WaitsForWay]) -> SentOn:
    """Send waiting jobs on another way, in the caller's transaction."""
    going: list[Reroute] = []
    unread: dict[UUID, str] = {}
    for row in rows:
        try:
            way = _way_of(row)
        except UnreadHere as error:
            unread[row.id] = str(error)
            continue
        if way:
            going.append(way)
    moved = move_another_way(going)
    waiting = [job for job, status in moved.items() if status == JobState.RATE_LIMITED]
    if waiting:
        move_jobs("release", [Move(job, message="it goes another way") for job in waiting])
    if moved:
        notify(Channel.READY)
    return SentOn({one.job for one in going}, unread, len(moved))


def _way_of(row: WaitsForWay) -> Reroute | None:
    try:
        payload = open_json(row.payload)
    except SealedAway as away:
        raise UnreadHere(away.message) from away
    known = ways_of(row.kind, payload)
    stood = StoodAs(row.project, row.user, row.service, row.model, row.credential, row.waited)
    return known and _reroute(row.id, row.reason, *known, at_step=row.fallback_step, stood=stood)


def _reroute(
    job: UUID, reason: Condition, handler: Handler, ways: Sequence[Fallback], *, at_step: int, stood: StoodAs
) -> Reroute | None:
    """Return how a job goes on; None: it has no other way, or its handler cannot describe the way."""
    to_step = next_way(ways, at_step, reason)
    if not to_step:
        return None
    try:
        to = columns_of(handler, ways[to_step - 1], job=job, project=stood.project, user=stood.user)
    except DatabaseError:
        raise
    except Exception:  # the handler's own code: its error would keep all other jobs from going on
        logger.exception("job %s stays on its way: its handler %s cannot describe the next", job, handler.kind)
        return None
    return Reroute(job, reason, ways, at_step, to_step, to, stood)


def ways_on(failures: Sequence[tuple[ClaimedJob, Failure, bool]]) -> dict[UUID, Reroute]:
    """
    Return the failed jobs that go on another way. Going on spends no attempt.

    Args:
        failures: Each job, its failure, and whether its work may be repeated.
    """
    found = {}
    for job, failure, repeatable in failures:
        reason = _condition(failure, repeatable=repeatable)
        known = reason and _ways_known(job)
        if not reason or not known:
            continue
        stood = StoodAs(job.project, job.user_id, job.service, job.model, job.credential, job.waited)
        if one := _reroute(job.id, reason, *known, at_step=job.fallback_step, stood=stood):
            found[job.id] = one
    return found


def _ways_known(job: ClaimedJob) -> tuple[Handler, Sequence[Fallback]] | None:
    with suppress(UnreadHere):
        return ways_of(job.kind, job.payload)
    return None


def _condition(failure: Failure, *, repeatable: bool) -> Condition | None:
    if failure.code == CONTEXT_TOO_LONG:
        return "context_too_long"
    if failure.code == CREDIT_GONE:
        return "no_credit"
    if failure.code == NO_QUOTA:  # it would wait for ever
        return "rate_limited"
    elsewhere = replace(failure, details={})  # `x-should-retry` speaks of the way that failed alone
    return "unavailable" if is_outage(failure) and is_retryable(elsewhere, repeatable=repeatable) else None


def move_another_way(going: Sequence[Reroute]) -> dict[UUID, str]:
    """Move waiting jobs to another way, in the caller's transaction; return the status of each job that moved."""
    if not going:
        return {}
    ways = [one.to for one in going]
    watches = [watched(one.ways, one.to_step) for one in going]
    parameters = {
        "ids": [one.job for one in going],
        "projects": [one.stood.project for one in going],
        "at_steps": plain_array([one.at_step for one in going]),
        "to_steps": plain_array([one.to_step for one in going]),
        "reasons": [one.reason for one in going],
        "services": [way.service for way in ways],
        "models": nullable([way.model for way in ways]),
        "credentials": nullable([way.credential for way in ways]),
        "targets": [way.target for way in ways],
        "paths": plain_array([way.path for way in ways]),
        "lanes": nullable([way.lane for way in ways]),
        "costs": plain_array([way.cost for way in ways]),
        "known_costs": plain_array([way.known_cost for way in ways]),
        "costs_by_unit": nullable([way.costs for way in ways]),
        "afters": plain_array([watch.after_seconds for watch in watches]),
        "on_outages": plain_array([watch.on_outage for watch in watches]),
        "messages": [_message(one) for one in going],
        "data": [_data(one) for one in going],
    }
    return dict(run_sql("jobs", "reroute_jobs", parameters))


def _message(one: Reroute) -> str:
    to = f"{one.to.model} of {one.to.service}" if one.to.model else one.to.service
    return f"goes on with {to}: {WORDS[one.reason].format(waited=one.stood.waited)}"


def _data(one: Reroute) -> str:
    return as_text(
        {
            "operation": "reroute",
            "fallback_step": one.to_step,
            "reason": one.reason,
            "from": shown(one.stood.service, one.stood.model, one.stood.credential),
            "to": shown(one.to.service, one.to.model, one.to.credential),
        }
    )
