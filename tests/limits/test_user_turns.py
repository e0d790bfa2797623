"""Users of one project take turns also where the project's window and their own are full at once."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from jobs.lanes import lane_name, read_lane
from jobs.services.claim import lanes
from jobs.services.claim.lanes import LaneGate
from queueops.core.sql import run_sql
from ratelimits.limiter import counters
from ratelimits.limiter.decide import Call, decide
from ratelimits.limiter.view import headroom
from ratelimits.limits import catalogue
from ratelimits.models import Limit
from ratelimits.subjects import Subject
from tests.faults.clusters import cluster
from tests.faults.ledger import Ledger
from tests.support.processes import wait_for
from tests.support.sandbox import Sandbox
from tests.support.saturation import Account, Quota, flood, judge, open_accounts, received, set_limits, set_quota

USERS = 7
PER_PROJECT, PER_USER = 300, 60  # more for all users together than for their project
FAIR = 0.9
MINUTE = 60.0
MINUTES = 6
NAMES = [
    lane_name(Subject("svc", "write", "acme", f"u{number}"), project="acme", user=f"u{number}")
    for number in range(USERS)
]


class Simulation:
    """
    Claims by the real gates and the real limiter, their counters in memory and time as the simulation says.

    In every lane more waits than a window admits. Claims come as a busy machine lets them: 1 to 60 ms late, and one in
    fifty up to two seconds.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, seed: int) -> None:
        self.now = 1000.0
        self.chance = random.Random(seed)  # noqa: S311 - how late claims are
        self.got: Counter[str] = Counter()
        self._states: dict[str, str] = {}
        monkeypatch.setattr(lanes, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(lanes, "run_sql", lambda *_, **__: [(name, "normal") for name in NAMES])
        monkeypatch.setattr(lanes, "stopped_lanes", lambda listed: set())
        monkeypatch.setattr(lanes, "crowded_lanes", frozenset)
        monkeypatch.setattr(headroom, "run_sql", self._read)
        monkeypatch.setattr(counters, "run_sql", self._lock_or_write)

    def run(self, seconds: float, *, claimers: int) -> None:
        gates = [LaneGate() for _ in range(claimers)]
        due = {number: self.now + self.chance.random() * 0.05 for number in range(claimers)}
        end = self.now + seconds
        while (at := min(due.values())) < end:
            number = min(due, key=lambda one: due[one])
            self.now = at
            due[number] = self.now + self.claim(gates[number]) + self._late()

    def claim(self, gate: LaneGate) -> float:
        """One claim in the order of choose_jobs.sql; returns the seconds until the claimer looks again."""
        offered = gate.look(wanted=20)
        turns = [
            (at + turn, name)
            for name, room, at in zip(offered.names, offered.rooms, offered.passes, strict=True)
            for turn in range(room)
        ]
        chosen = [name for _, name in sorted(turns)][:20]
        calls = [Call(read_lane(name).subject, paced=True, crowded=name in gate.crowded) for name in chosen]
        decisions = decide(calls) if calls else []
        claimed = [name for name, decision in zip(chosen, decisions, strict=True) if decision.kind == "proceed"]
        self.got.update(claimed)
        gate.served(("acme", name) for name in claimed)
        refused = [(name, one.retry_at - one.now) for name, one in zip(chosen, decisions, strict=True) if one.retry_at]
        if refused:
            gate.refused(dict(reversed(refused)))
        elif chosen and not claimed:
            gate.rest()
        return 0.0 if claimed or refused else min(gate.next_look_seconds, 0.5)

    def _late(self) -> float:
        is_held_up = self.chance.random() < 0.02
        return self.chance.uniform(0.3, 2.0) if is_held_up else self.chance.uniform(0.001, 0.06)

    def _read(self, app: str, name: str, given: dict[str, Any]) -> list[tuple[Any, ...]]:
        return [(self.now, one, self._states.get(one, "{}"), *headroom.UNUSED[1:]) for one in given["ids"]]

    def _lock_or_write(self, app: str, name: str, given: dict[str, Any]) -> list[tuple[Any, ...]]:
        if name == "lock_counters":
            return [(one, self._states.get(one, "{}"), None, "", 1.0, None, 0, self.now) for one in given["ids"]]
        if name == "write_counters":
            self._states.update(zip(given["ids"], given["states"], strict=True))
            return []
        return run_sql(app, name, given)


@pytest.fixture
def two_windows(db: None) -> Iterator[None]:
    Limit.objects.all().delete()
    window = {"service": "svc", "algorithm": "sliding_window", "window_seconds": MINUTE, "notice_percent": 0}
    Limit.objects.create(name="project", scope="project", capacity=PER_PROJECT, warning_percent=0, **window)
    Limit.objects.create(name="user", scope="project_user", capacity=PER_USER, warning_percent=0, **window)
    catalogue.forget()
    yield
    catalogue.forget()


@pytest.mark.usefixtures("two_windows")
@pytest.mark.matrix
def test_users_get_alike_of_a_window_that_is_full_while_their_own_are_too(monkeypatch):
    simulation = Simulation(monkeypatch, seed=1)
    simulation.run(2 * MINUTE, claimers=2)
    calls = [simulation.got[name] for name in NAMES]
    assert sum(calls) >= 1.9 * PER_PROJECT
    assert min(calls) / max(calls) >= FAIR, calls


@pytest.mark.soak
@pytest.mark.django_db(transaction=True)
def test_users_get_alike_over_six_real_minutes(sandbox: Sandbox, tmp_path, figures):
    quota = Quota("sliding", MINUTE, PER_PROJECT, PER_USER, late_seconds=0.5)
    users = [Account("shared", f"u{number}") for number in range(USERS)]
    set_quota(sandbox, quota)
    set_limits(quota, algorithm="sliding_window")
    open_accounts(users, url=sandbox.url)
    flood(users, (MINUTES + 1) * PER_PROJECT)
    with cluster(Ledger(tmp_path)):
        wait_for(lambda: received(sandbox) > 0, what="the first call")
        until = time.time() + MINUTES * MINUTE
        wait_for(lambda: time.time() > until, seconds=2 * MINUTES * MINUTE, what="six minutes")
    calls = [call for call in sandbox.calls() if call["at"] <= until]
    by_user = Counter(call["user"] for call in calls if call["accepted"])
    judged = judge(calls, quota, until=until)
    share = min(by_user.values()) / max(by_user.values())
    figures(f"{judged.calls:,} calls, {judged.above_quota} above the quota; of users {sorted(by_user.values())}")
    assert len(by_user) == USERS
    assert judged.above_quota == 0
    assert share >= FAIR
