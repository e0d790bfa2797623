"""
Turns between projects: start-time fair queueing, kept in each executor's memory. Pure.

Every call that leaves adds `1 / weight` to its project's pass; the project with the lowest pass goes next. Jobs that
leave together are one call. A project that was idle starts at the common virtual time: it gets no extra turns for its
absence. A pass is the start of a project's next turn. Choosing by the turn's end would let the project with the largest
weight win for ever when one job is claimed at a time. Each executor keeps its own turns. Their sum is fair, too,
without a row that all executors would lock.

Source: Goyal, Vin and Cheng, "Start-time Fair Queueing", IEEE/ACM Transactions on Networking 5(5), 1997.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

MAX_OWED = 100  # turns owed to a lane without room: otherwise, a raised cap would stop its neighbours for long


class Turns:
    """The projects' turns in one class."""

    def __init__(self) -> None:
        self.passes: dict[str, float] = {}
        self.now = 0.0

    def served(self, claims: Mapping[str, int], weights: Mapping[str, float]) -> None:
        """Account for one claim: how many jobs each project got, and the projects' weights."""
        last_start = self.now
        for project, count in claims.items():
            if not count:
                continue
            turn = 1 / weights.get(project, 1.0)
            end = max(self.passes.get(project, self.now), self.now) + count * turn
            self.passes[project] = end
            last_start = max(last_start, end - turn)
        # The virtual time is the start of the last turn given. If it were that turn's end, the project just served
        # would tie with a project that arrives now, and its older jobs would win every tie. A project at or behind the
        # virtual time needs no entry: it would start there anyway.
        self.now = last_start
        self.passes = {project: at for project, at in self.passes.items() if at > self.now}


class LaneTurns:
    """
    The turns of a project's lanes: as `Turns`, but a lane with waiting jobs keeps its pass while it has no room.

    A lane is owed the turns that it missed for lack of room. `Turns` would forget them as soon as the other lanes'
    passes are ahead. Where the windows of the project and of each user are full, that happens in every window: each
    user's room comes back at another time. With `Turns`, two of seven users got 8 and 17 calls in a minute, the others
    50 to 57.
    """

    def __init__(self) -> None:
        self.passes: dict[str, float] = {}
        self.now = 0.0

    def wait(self, lanes: Collection[str]) -> None:
        """Say which lanes have work: new lanes begin at the common virtual time; lanes without work are forgotten."""
        self.passes = {lane: max(self.passes.get(lane, self.now), self.now - MAX_OWED) for lane in lanes}

    def served(self, claims: Mapping[str, int]) -> None:
        """Account for one claim: how many jobs each lane got."""
        for lane, count in claims.items():
            end = self.passes.get(lane, self.now) + count
            self.passes[lane] = end
            self.now = max(self.now, end - 1)


class ClassTurns:
    """
    One claimer's turns within each class, and the share of its claims that goes to overdue jobs of lower classes.

    Each class has a virtual time of its own. With a common one, every urgent job of one project would wipe out the
    turns that other projects are owed among the normal jobs.
    """

    def __init__(self, starved_share: float = 0.1) -> None:
        """`starved_share`: the part of all claims kept for overdue jobs of lower classes."""
        self.starved_share = starved_share
        self.by_class: dict[int, Turns] = {}
        self._claims = 0

    def standing(self) -> list[tuple[int, str, float]]:
        """Class, project and pass of every project whose pass is ahead of its class's virtual time."""
        return [(tier, project, at) for tier, turns in self.by_class.items() for project, at in turns.passes.items()]

    def nows(self) -> list[float]:
        """The virtual time of each class, from class 1 on."""
        highest = max(self.by_class, default=0)
        return [self.by_class[tier].now if tier in self.by_class else 0.0 for tier in range(1, highest + 1)]

    def starved_after(self) -> float:
        """How many claims come before the next that belongs to an overdue job of a lower class; infinite: none does."""
        if not self.starved_share:
            return math.inf
        # Without 1e-9, the product of two floats could be just below a whole number: one claim too few would be owed.
        owed = int(self._claims * self.starved_share + 1e-9) + 1
        return math.ceil(owed / self.starved_share - 1e-9) - self._claims - 1

    def starved_every(self) -> float:
        """How many claims come between two for overdue jobs of a lower class."""
        return 1 / self.starved_share - 1 if self.starved_share else math.inf

    def served(self, claims: Mapping[tuple[int, str], int], weights: Mapping[str, float]) -> None:
        """Account for one claim: how many jobs of each class each project got, and the projects' weights."""
        self._claims += sum(claims.values())
        classes: dict[int, dict[str, int]] = {}
        for (tier, project), count in claims.items():
            classes.setdefault(tier, {})[project] = count
        for tier, served in classes.items():
            self.by_class.setdefault(tier, Turns()).served(served, weights)
