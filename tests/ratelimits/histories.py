"""Random lives of one counter, and the plain list of what was granted in them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from ratelimits.algorithms.admission import Algorithm, State
from tests.ratelimits.one_counter import admit, charge, refund

START = 1_732_118_400_000_000
MICRO = 1_000_000


@dataclass(frozen=True)
class Step:
    """The clock moves, the limit may be edited, then calls ask, or spend late, or return what they didn't use."""

    moves: int
    costs: list[int] = field(default_factory=list)
    spent_late: int = 0
    returns: tuple[int, int] | None = None
    edit: int = 0
    restart: bool = False


@dataclass
class Grant:
    """
    One call that went out; times in microseconds.

    `elapsed` is the time that passed since the beginning by the forward moves of the clock alone, which is
    the least that can have passed: a clock that goes back takes nothing from the provider's memory.
    """

    elapsed: int
    observed: int
    leaves: int
    booked_at: float
    cost: int
    algorithm: Algorithm
    late: bool = False
    returned: int = 0
    returned_before: int | None = None

    def cost_known(self, place: int) -> int:
        """Return the cost as it was known when the grant number `place` was made."""
        known = self.returned_before is not None and self.returned_before <= place
        return self.cost - self.returned if known else self.cost


@dataclass
class Denial:
    elapsed: int
    cost: int
    granted_before: int


@dataclass
class Life:
    grants: list[Grant] = field(default_factory=list)
    denials: list[Denial] = field(default_factory=list)
    state: State = field(default_factory=dict)


def steps(
    *,
    costs: st.SearchStrategy[int],
    longest: int,
    steps_back: int = 0,
    edits: int = 1,
    late: bool = False,
    returns: bool = False,
) -> st.SearchStrategy[list[Step]]:
    """Draw up to 40 steps; moves in microseconds, mostly short ones, some exactly on whole seconds."""
    forward = (
        st.integers(0, longest) | st.integers(0, longest // MICRO).map(lambda s: s * MICRO) | st.integers(0, MICRO)
    )
    moves = forward | st.integers(-steps_back, 0) if steps_back else forward
    return st.lists(
        st.builds(
            Step,
            moves=moves,
            costs=st.lists(costs, max_size=6),
            spent_late=st.just(0) | costs if late else st.just(0),
            returns=st.none() | st.tuples(st.integers(0, 1000), costs) if returns else st.none(),
            edit=st.integers(0, edits - 1),
            restart=st.booleans(),
        ),
        max_size=40,
    )


def live(algorithms: list[Any], history: list[Step]) -> Life:
    """Play a history against the algorithm that each step's `edit` chooses."""
    life = Life()
    clock, elapsed = START, 0
    for step in history:
        clock += step.moves
        elapsed += max(0, step.moves)
        now, algorithm = clock / MICRO, algorithms[step.edit]
        if step.restart:
            life.state = json.loads(json.dumps(life.state))
        if step.returns and (open_grants := [g for g in life.grants if g.returned_before is None and not g.late]):
            grant = open_grants[step.returns[0] % len(open_grants)]
            back = min(step.returns[1], grant.cost)
            life.state = refund(algorithm, life.state, now, back, granted_at=grant.booked_at)
            grant.returned, grant.returned_before = back, len(life.grants)
        before = json.dumps(life.state)
        answer = admit(algorithm, life.state, now, step.costs)
        assert json.dumps(life.state) == before, "the given state was changed"
        for cost, verdict in zip(step.costs, answer.verdicts, strict=True):
            if verdict.granted:
                leaves = elapsed + max(0, round((verdict.at or 0) * MICRO) - round(answer.booked_at * MICRO))
                life.grants.append(Grant(elapsed, clock, leaves, answer.booked_at, cost, algorithm))
            elif not verdict.rejected:
                life.denials.append(Denial(elapsed, cost, len(life.grants)))
        life.state = answer.state
        if step.spent_late:
            life.state = charge(algorithm, life.state, now, step.spent_late)
            life.grants.append(Grant(elapsed, clock, elapsed, now, step.spent_late, algorithm, late=True))
    return life
