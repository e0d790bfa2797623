"""Every order in which two connections can claim, rescue and complete one job, and commit or wait in between."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, product
from queue import SimpleQueue
from uuid import uuid4

import pytest
from django.db import connection, connections, transaction

from jobs.models import Job, JobEvent
from jobs.services.claim.claim import claim_jobs, claim_new, promote_due
from jobs.services.claim.fair_share import ClassTurns
from jobs.services.claim.lanes import LaneGate
from jobs.services.claim.scan_cursor import ScanCursor
from jobs.services.finish.claimed import ClaimedJob
from jobs.services.finish.finish import record_outcomes
from jobs.services.finish.outcomes import Succeeded
from jobs.services.upkeep.upkeep import rescue_lapsed
from jobs.states import JobState
from tests.factories import make_job

pytestmark = pytest.mark.proves("R9")

Program = Sequence[str]

OPERATIONS = ("claim", "rescue", "complete")
# What came before, by the first: nothing; it claimed; it claimed, was taken for dead, and the second claimed.
BEFORE: dict[str, list[tuple[int, str]]] = {
    "queued": [],
    "held": [(0, "claim")],
    "taken over": [(0, "claim"), (1, "rescue"), (1, "claim")],
}


@dataclass
class Actor:
    """
    An executor on a connection of its own, that carries out an operation and commits it when told to.

    Attributes:
        was_told: Of the job, as the only one: it claims what is new.
    """

    was_told: bool

    orders: SimpleQueue[Callable[[], None] | None] = field(default_factory=SimpleQueue)
    carried_out: threading.Event = field(default_factory=threading.Event)
    may_commit: threading.Event = field(default_factory=threading.Event)
    committed: threading.Event = field(default_factory=threading.Event)
    pid: int = 0
    held: ClaimedJob | None = None
    tokens: list[int] = field(default_factory=list)
    completed: list[int] = field(default_factory=list)
    error: Exception | None = None

    def work(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_backend_pid()")
            [self.pid] = cursor.fetchone()
        self.committed.set()
        while order := self.orders.get():
            try:
                with transaction.atomic():
                    order()
                    self.carried_out.set()
                    self.may_commit.wait(20)
            except Exception as error:  # noqa: BLE001 (raised again by the test)
                self.error = error
            self.carried_out.set()
            self.committed.set()
        connections.close_all()

    def begin(self, operation: str) -> None:
        for event in (self.carried_out, self.may_commit, self.committed):
            event.clear()
        self.orders.put(getattr(self, operation))

    def commit(self) -> None:
        self.may_commit.set()
        assert self.committed.wait(20)
        if self.error:
            raise self.error

    def claim(self) -> None:
        # Its lease is over as soon as it begins: a rescue may come at any moment.
        turns = ClassTurns()
        claimed = (
            claim_new(uuid4(), lease_seconds=0, turns=turns, gate=LaneGate())
            if self.was_told
            else claim_jobs(uuid4(), wanted=1, lease_seconds=0, turns=turns)
        )
        for job in claimed:
            self.held = job
            self.tokens.append(job.token)

    def rescue(self) -> None:
        rescue_lapsed()
        promote_due()

    def complete(self) -> None:
        if self.held and not record_outcomes([Succeeded(self.held, "http", None, 1.0)], policies={}).lost:
            self.completed.append(self.held.token)

    def forget(self) -> None:
        self.held, self.tokens, self.completed = None, [], []


@pytest.fixture(params=["all", "only queue"])
def actors(
    request: pytest.FixtureRequest, transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[Actor, Actor]]:
    monkeypatch.setattr(ScanCursor, "had_one_queue", request.param == "only queue")
    both = Actor(was_told=False), Actor(was_told=True)
    threads = [threading.Thread(target=actor.work) for actor in both]
    for thread in threads:
        thread.start()
    for actor in both:
        assert actor.committed.wait(20)
    yield both
    for actor, thread in zip(both, threads, strict=True):
        actor.orders.put(None)
        thread.join(20)


def orders_of(first: Program, second: Program) -> Iterator[list[int]]:
    """Every order of both programs' steps, two an operation: carry out, commit. Whose turn it is, step by step."""
    steps = 2 * (len(first) + len(second))
    for chosen in combinations(range(steps), 2 * len(first)):
        yield [0 if step in chosen else 1 for step in range(steps)]


def play(actors: tuple[Actor, Actor], programs: tuple[Program, Program], turns: Sequence[int]) -> bool:
    """Carry out the programs in this order; whoever waits for a lock goes on when it is free. Whether anybody did."""
    left = [[step for name in program for step in (name, "commit")] for program in programs]
    waits = [False, False]
    waited = False
    # A turn that falls to whoever waits is made up for at the end.
    for turn in [*turns, *turns, *turns]:
        actor, other = actors[turn], actors[1 - turn]
        if not left[turn]:
            continue
        if waits[turn]:
            if not actor.carried_out.is_set() and is_blocked(actor, by=other):
                continue
            assert actor.carried_out.wait(20)
            waits[turn] = False
        step = left[turn].pop(0)
        if step == "commit":
            actor.commit()
        else:
            actor.begin(step)
            while not actor.carried_out.wait(0.005) and not waits[turn]:
                waits[turn] = is_blocked(actor, by=other)
            waited |= waits[turn]
    assert left == [[], []]
    return waited


def is_blocked(actor: Actor, *, by: Actor) -> bool:
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s = ANY(pg_blocking_pids(%s))", [by.pid, actor.pid])
        return bool(cursor.fetchone()[0])


def check(actors: tuple[Actor, Actor]) -> None:
    granted = sorted(token for actor in actors for token in actor.tokens)
    assert len(set(granted)) == len(granted), "a token has two owners"
    completed = [token for actor in actors for token in actor.completed]
    job = Job.objects.get()
    moves = list(JobEvent.objects.filter(job_id=job.pk, event_type="state_change").order_by("pk"))
    assert [move.to_status for move in moves].count(JobState.DISPATCHED) == len(granted)
    assert len(completed) == (job.status == JobState.COMPLETED)
    assert not completed or completed == granted[-1:], "a stale token completed the job"
    status = None
    for move in moves:
        assert move.from_status in (status, None), "two transactions moved the job from one state"
        status = move.to_status
    assert status == job.status
    claims_that_ended = [move for move in moves if move.from_status in (JobState.DISPATCHED, JobState.IN_PROGRESS)]
    ends = [move for move in claims_that_ended if move.to_status in (JobState.RETRIED, JobState.COMPLETED)]
    running = job.status in (JobState.DISPATCHED, JobState.IN_PROGRESS)
    assert len(ends) == len(granted) - running, "a claim ended twice"


def play_all(actors: tuple[Actor, Actor], pairs: Iterator[tuple[Program, Program]]) -> tuple[int, int]:
    """Play every order of every pair from every beginning; how many, and in how many somebody waited."""
    played = waited = 0
    for programs in pairs:
        for before, turns in product(BEFORE.values(), orders_of(*programs)):
            Job.objects.all().delete()
            make_job()
            for actor in actors:
                actor.forget()
            for who, operation in before:
                actors[who].begin(operation)
                assert actors[who].carried_out.wait(20)
                actors[who].commit()
            try:
                waited += play(actors, programs, turns)
                check(actors)
            except AssertionError as error:
                raise AssertionError(f"{error}: {programs} after {before} in the order {turns}") from error
            played += 1
    return played, waited


def programs(length: int) -> list[Program]:
    return list(product(OPERATIONS, repeat=length))


def test_a_job_has_one_owner_in_every_order_of_one_operation_each(actors, figures):
    played, waited = play_all(actors, product(programs(1), programs(1)))
    assert played == 9 * 6 * len(BEFORE)
    assert waited, "nobody ever waited for the other: nothing was interleaved"
    figures(f"{played} interleavings, in {waited} one waited for the other, never two owners")


@pytest.mark.soak
def test_a_job_has_one_owner_in_every_order_of_two_operations_each(actors, figures):
    played, waited = play_all(actors, product(programs(2), programs(2)))
    assert played == 81 * 70 * len(BEFORE)
    figures(f"{played} interleavings, in {waited} one waited for the other, never two owners")
