"""One executor's view of the lanes in which jobs wait: which lanes may release jobs now."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, zip_longest

from jobs.lanes import Lane, read_lane
from jobs.models import POOLED
from jobs.services.explain.queues import crowded_lanes
from jobs.states import Priority
from queueops.core.sql import run_sql
from ratelimits.limiter.view.headroom import Headroom, read_headroom
from ratelimits.subjects import Subject

from .fair_share import LaneTurns
from .stopped import stopped_lanes

MAX_LANES_CLAIMED = 2000  # lanes in one list; if there are more, lists take turns
MAX_LANES_OPEN = 500  # open lanes that one claim gets
CHOICE = 2  # a claim looks at CHOICE times as many jobs as a limit admits
TIERS = {tier.value: rank for rank, tier in enumerate((Priority.URGENT, Priority.NORMAL, Priority.LOW))}
LIST_SECONDS = 1.0  # lanes are listed anew at least this often
READING_SHARE = 0.05  # the most of an executor's time for listing lanes; reading all rooms may take as much again
CLOSED_LOOK_SECONDS = 0.25  # closed lanes are read this often, whatever their forecast: caps and room change
MIN_LOOK_SECONDS = 0.02
REST_SECONDS = 0.05
PROBE_REST_SECONDS = 1.0  # longer than a claim takes, or claims would choose nothing but a refused probe
NOW = float("-inf")  # due at once


@dataclass(frozen=True, slots=True)
class OpenLanes:
    """The lanes that a claim may take jobs from, as parallel lists: parameters of choose_jobs.sql."""

    names: list[str] = field(default_factory=list)
    rooms: list[int] = field(default_factory=list)
    passes: list[float] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class LaneHeadroom:
    """A lane with waiting jobs, and the room that its limits had when they were last read."""

    name: str
    lane: Lane
    priority: str
    room: Headroom
    rate_per_second: float | None  # the lane's share, where lanes share a limit; None: no limit paces it


class LaneGate:
    """
    One executor's view of the lanes: it lists them now and then, and reads their room when the room may have changed.

    The limiter decides by the counters; this view only keeps a claim from choosing jobs that would be refused. A claim
    reads the room of lanes that were open or should have opened. All lanes are read only once in CLOSED_LOOK_SECONDS,
    so a thousand full lanes cost a claim nothing. The view lags by that much, or more where reading takes long.
    """

    def __init__(self, pool: str = "") -> None:
        """
        Args:
            pool: The pool that the executor serves; empty: all jobs.
        """
        self._pool = pool
        self._lanes: dict[str, LaneHeadroom] = {}
        self._opens_at: dict[str, float] = {}  # monotonic seconds of this process, as all times in this class
        self._refused: dict[str, float] = {}  # lane -> the time until which no claim gets it
        self._resting: dict[str, float] = {}  # lane -> the time until which its probe is not chosen
        self.has_refused = False  # a limit refused jobs of the last claim: other jobs may be ready behind them
        self.crowded: frozenset[str] = frozenset()  # lanes in which more jobs wait than their share of a window
        self._turns: dict[str, LaneTurns] = {}
        self._listed: list[tuple[str, str]] = []
        self._after = ""
        self._look_at = self._list_at = self._round_at = NOW
        self._list_again_at = self._round_again_at = NOW  # earliest next list and round, whatever hints come

    @property
    def waiting(self) -> list[LaneHeadroom]:
        """The lanes with waiting jobs, as last read."""
        return list(self._lanes.values())

    def hint(self) -> None:
        """Read all lanes at the next look: jobs came, a limit changed, or a call ended."""
        self._look_at = self._list_at = self._round_at = NOW

    def look(self, *, wanted: int) -> OpenLanes:
        """
        Return the lanes that have room, in the caller's transaction.

        Args:
            wanted: How many jobs the claim can take.
        """
        now = time.monotonic()
        self.has_refused = False
        if now < self._look_at:
            return OpenLanes()
        if now >= max(self._list_at, self._list_again_at):
            self._list(now)
        if now >= max(self._round_at, self._round_again_at):
            self._look_round(now)
        else:
            self._look_at_some([name for name, at in self._opens_at.items() if at <= now], now)
        # Forget the refusal of a lane that was then read as closed: its own opening time says more. A refusal counts
        # only for a lane that looks open.
        self._refused = {
            name: at for name, at in self._refused.items() if at > now and self._opens_at.get(name, at) <= now
        }
        opened = [one for name, one in self._lanes.items() if self._opens_at[name] <= now and name not in self._refused]
        if opened:
            self._look_at = now
        else:
            soonest = min((max(at, self._refused.get(name, at)) for name, at in self._opens_at.items()), default=now)
            self._look_at = now + min(max(soonest - now, MIN_LOOK_SECONDS), CLOSED_LOOK_SECONDS)
        return self._offered(opened, wanted)

    @property
    def has_lanes(self) -> bool:
        """Whether jobs waited in any lane when lanes were last listed."""
        return bool(self._listed)

    @property
    def next_look_seconds(self) -> float:
        """Seconds until a closed lane may open; infinite if no jobs wait in lanes."""
        if not self._listed:
            return math.inf
        return max(0.0, self._look_at - time.monotonic())

    def flows(self) -> tuple[list[str], list[float]]:
        """Projects with lanes, and for each the pass of its jobs outside lanes, which take turns with its lanes."""
        return list(self._turns), [turns.passes.get("", turns.now) for turns in self._turns.values()]

    def served(self, claimed: Iterable[tuple[str, str]]) -> None:
        """Account for one claim: project and lane ("" outside lanes) of every job that left."""
        counts: dict[str, Counter[str]] = {}
        for project, lane in claimed:
            if project in self._turns:
                counts.setdefault(project, Counter())[lane] += 1
        for project, served in counts.items():
            self._turns[project].served(served)

    def refused(self, delays: Mapping[str, float], *, probes: Iterable[str] = ()) -> None:
        """
        Note that the limiter refused lanes that looked open, for example as a call needs more tokens than are left.

        Args:
            delays: Lane -> seconds until it may have room.
            probes: Lanes whose probe was refused.
        """
        now = time.monotonic()
        self.has_refused = True
        self._refused.update((name, now + min(delay, CLOSED_LOOK_SECONDS)) for name, delay in delays.items())
        self._resting.update((name, now + PROBE_REST_SECONDS) for name in probes)
        self._look_at = NOW

    def resting(self) -> list[str]:
        """Lanes whose probe the limiter has just refused: probes need no open lane, so every claim would choose it."""
        now = time.monotonic()
        self._resting = {name: at for name, at in self._resting.items() if at > now}
        return list(self._resting)

    def rest(self) -> None:
        """Note that open lanes had no job to claim: their jobs are locked, paused or wait for an outage to end."""
        self._look_at = time.monotonic() + REST_SECONDS

    def _list(self, now: float) -> None:
        given = {"after": self._after, "most": MAX_LANES_CLAIMED, "pool": self._pool}
        rows = run_sql("jobs", "list_lanes", given, variant=POOLED if self._pool else "")
        self._listed = [(str(name), str(priority)) for name, priority in rows]
        # If there are more lanes, the next list begins where this one ended.
        self._after = self._listed[-1][0] if len(rows) == MAX_LANES_CLAIMED else ""
        self.crowded = crowded_lanes([name for name, _ in self._listed])
        took = time.monotonic() - now
        self._list_at, self._list_again_at = now + LIST_SECONDS, now + took / READING_SHARE
        if not {name for name, _ in self._listed} <= self._lanes.keys():
            self._round_at = NOW

    def _look_round(self, now: float) -> None:
        listed = [(name, read_lane(name), priority) for name, priority in self._listed]
        # Leave out lanes that have no job to claim. Claims find a target's probe by the breaker, without its lane.
        stopped = stopped_lanes(lane for _, lane, _ in listed)
        lanes = [one for one in listed if one[1] not in stopped]
        found = self._rooms([name for name, _, _ in lanes])
        sharing = Counter(chain.from_iterable(found[lane.subject].counters for _, lane, _ in lanes))
        self._lanes = {
            name: LaneHeadroom(name, lane, priority, found[lane.subject], _share(found[lane.subject], sharing))
            for name, lane, priority in lanes
        }
        self._opens_at = {name: _opens_at(one.room, now) for name, one in self._lanes.items()}
        self._take_turns()
        took = time.monotonic() - now
        self._round_at, self._round_again_at = now + CLOSED_LOOK_SECONDS, now + took / READING_SHARE

    def _take_turns(self) -> None:
        """Let the lanes with waiting jobs take turns within their projects."""
        waiting: dict[str, set[str]] = {}
        for name, one in self._lanes.items():
            waiting.setdefault(one.lane.project, set()).add(name)
        if len(self._listed) == MAX_LANES_CLAIMED:  # keep the turns of lanes outside this list
            for project, turns in self._turns.items():
                waiting.setdefault(project, set()).update(turns.passes)
        self._turns = {project: self._turns.get(project, LaneTurns()) for project in waiting}
        for project, lanes in waiting.items():
            self._turns[project].wait(lanes)

    def _rooms(self, names: list[str]) -> dict[Subject, Headroom]:
        if not names:
            return {}
        crowded = {read_lane(name).subject for name in self.crowded.intersection(names)}
        return read_headroom((read_lane(name).subject for name in names), paced=True, crowded=crowded)

    def _look_at_some(self, names: list[str], now: float) -> None:
        found = self._rooms(names)
        for name in names:
            one = self._lanes[name]
            room = found[one.lane.subject]
            self._lanes[name] = replace(one, room=room)
            self._opens_at[name] = _opens_at(room, now)

    def _offered(self, opened: list[LaneHeadroom], wanted: int) -> OpenLanes:
        """
        Let the claim choose about equally many jobs of each project, and up to CHOICE times as many as limits admit.

        A project's lanes are taken alternately by their most urgent tier and by their turn. The claim thus finds the
        most urgent lanes as well as the overdue ones.
        """
        passes = {one.name: self._turns[one.lane.project].passes[one.name] for one in opened}
        of_project: dict[str, list[LaneHeadroom]] = {}
        for one in sorted(opened, key=lambda one: passes[one.name]):
            of_project.setdefault(one.lane.project, []).append(one)
        by_turn = _alternating(list(of_project.values()))
        by_tier = _alternating([sorted(lanes, key=lambda one: TIERS[one.priority]) for lanes in of_project.values()])
        sharing = Counter(chain.from_iterable(one.room.counters for one in opened))
        share = 2 * max(4, math.ceil((2 * wanted + 16) / max(1, len(of_project))))
        left: dict[str, int] = {}
        offered: dict[str, int] = {}
        for one in _alternating([by_tier, by_turn]):
            if one.name in offered:
                continue
            heads = min(one.room.calls, math.ceil(share / len(of_project[one.lane.project])) + 1)
            for counter, room in zip(one.room.counters, one.room.calls_each, strict=True):
                enough = CHOICE * room + 1
                heads = min(heads, left.setdefault(counter, enough), math.ceil(enough / sharing[counter]) + 1)
            if heads > 0:
                offered[one.name] = heads
                left.update((counter, left[counter] - heads) for counter in one.room.counters)
            if len(offered) == MAX_LANES_OPEN:
                break
        return OpenLanes(list(offered), list(offered.values()), [passes[name] for name in offered])


def _alternating(rows: list[list[LaneHeadroom]]) -> list[LaneHeadroom]:
    return [one for one in chain.from_iterable(zip_longest(*rows)) if one is not None]


def _opens_at(room: Headroom, now: float) -> float:
    return now if room.calls else now + max(room.opens_at - room.now, MIN_LOOK_SECONDS)


def _share(room: Headroom, sharing: Counter[str]) -> float | None:
    """The pace of a lane, in calls a second, when all lanes that share a counter with it take turns."""
    paces = [
        pace / sharing[counter] for counter, pace in zip(room.counters, room.paces, strict=True) if pace is not None
    ]
    return min(paces, default=None)
