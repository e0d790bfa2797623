"""Requests of one process are carried out in groups, and each gets its own answer."""

from __future__ import annotations

import os
import random
import threading
from collections import Counter as Tally
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from django.db import OperationalError, transaction

from queueops.tenancy.models import Project, ProjectMove
from queueops.tenancy.moves import ProjectMoving
from ratelimits.limiter.answers import Asking, Reply, _carry_out, ask
from ratelimits.limiter.combine import Combiner
from ratelimits.limiter.decide import Call
from ratelimits.limiter.view.gauges import gauges
from ratelimits.limits.catalogue import forget
from ratelimits.models import Charge, Limit
from ratelimits.subjects import Subject
from tests.factories import make_project
from tests.support.processes import database_url, wait_for
from tests.support.racing import run_together


class Work:
    """What a combiner carries out: it notes its groups, and waits at `gate` while that is shut."""

    def __init__(self) -> None:
        self.groups: list[list[Any]] = []
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, group: Sequence[Any]) -> list[str]:
        self.groups.append(list(group))
        assert self.gate.wait(20)
        for asked in group:
            if isinstance(asked, BaseException):
                raise asked
        return [f"answer {asked}" for asked in group]


def waiting(combiner: Combiner[Any, Any], count: int) -> None:
    wait_for(lambda: len(combiner._waiting) == count, what=f"{count} requests in line")


def queued(
    combiner: Combiner[Any, Any], work: Work, threads: ThreadPoolExecutor, requests: Sequence[Any], *, size: int = 1
) -> list[Future[Any]]:
    """Ask one request that a leader works on until the gate opens, and the others behind it, in order."""
    work.gate.clear()
    first = threads.submit(combiner.ask, "first")
    wait_for(lambda: work.groups, what="a leader at work")
    futures = [first]
    for number, asked in enumerate(requests, 1):
        futures.append(threads.submit(combiner.ask, asked, size=size))
        waiting(combiner, number)
    return futures


@pytest.fixture
def threads():
    with ThreadPoolExecutor(64) as pool:
        yield pool


def test_what_comes_while_a_leader_works_is_the_next_group_in_the_order_of_coming(threads):
    work = Work()
    combiner = Combiner(work, most=100)
    futures = queued(combiner, work, threads, range(8))
    work.gate.set()
    assert [future.result(20) for future in futures] == ["answer first", *(f"answer {number}" for number in range(8))]
    assert work.groups == [["first"], list(range(8))]


def test_a_leader_waits_for_nobody():
    work = Work()
    combiner = Combiner(work, most=100)
    assert [combiner.ask(number) for number in range(3)] == ["answer 0", "answer 1", "answer 2"]
    assert work.groups == [[0], [1], [2]]


def test_nobody_leads_beside_the_one_to_whom_the_lead_was_passed(threads):
    groups: list[Sequence[str]] = []
    permits = threading.Semaphore(0)

    def carry_out(group: Sequence[str]) -> Sequence[str]:
        groups.append(group)
        assert permits.acquire(timeout=20)
        return group

    combiner = Combiner(carry_out, most=100)
    futures = [threads.submit(combiner.ask, "first")]
    wait_for(lambda: groups, what="the first leader")
    futures.append(threads.submit(combiner.ask, "second"))
    waiting(combiner, 1)
    permits.release()
    wait_for(lambda: len(groups) == 2, what="the second leader")
    futures.append(threads.submit(combiner.ask, "third"))
    waiting(combiner, 1)
    permits.release(2)
    assert [future.result(20) for future in futures] == ["first", "second", "third"]
    assert groups == [["first"], ["second"], ["third"]]


def test_a_group_is_no_larger_than_allowed_and_a_larger_request_goes_alone(threads):
    work = Work()
    combiner = Combiner(work, most=10)
    futures = queued(combiner, work, threads, range(7), size=4)
    futures.append(threads.submit(combiner.ask, "large", size=50))
    waiting(combiner, 8)
    work.gate.set()
    for future in futures:
        future.result(20)
    assert work.groups == [["first"], [0, 1], [2, 3], [4, 5], [6], ["large"]]


def test_a_transaction_that_fails_fails_for_its_whole_group_and_for_no_other(threads):
    work = Work()
    combiner = Combiner(work, most=3)
    futures = queued(combiner, work, threads, [1, OperationalError("gone"), 3, 4])
    work.gate.set()
    assert futures[0].result(20) == "answer first"
    for future in futures[1:4]:
        with pytest.raises(OperationalError, match="gone"):
            future.result(20)
    assert futures[4].result(20) == "answer 4"
    assert combiner.ask("later") == "answer later"


def test_a_request_that_cannot_be_carried_out_fails_alone(threads):
    work = Work()
    combiner = Combiner(work, most=100)
    futures = queued(combiner, work, threads, [1, ValueError("malformed"), 3])
    work.gate.set()
    assert [futures[place].result(20) for place in (0, 1, 3)] == ["answer first", "answer 1", "answer 3"]
    with pytest.raises(ValueError, match="malformed"):
        futures[2].result(20)


class Ended(BaseException):
    """What ends a thread: no Exception."""


def test_a_leader_whose_thread_ends_leaves_nobody_waiting(threads):
    work = Work()
    combiner = Combiner(work, most=3)
    futures = queued(combiner, work, threads, [1, Ended(), 3, 4])
    work.gate.set()
    for future in futures[1:4]:
        with pytest.raises(Ended):
            future.result(20)
    assert futures[4].result(20) == "answer 4"
    assert combiner.ask("later") == "answer later"


@pytest.mark.parametrize("seed", range(5))
def test_whatever_comes_together_everyone_gets_the_answer_to_its_own_request(threads, seed):
    chance = random.Random(seed)  # noqa: S311 (draws a schedule)
    carried_out: Tally[int] = Tally()
    at_work = threading.Lock()

    def carry_out(group: Sequence[int]) -> list[int]:
        assert at_work.acquire(blocking=False), "two leaders at once"
        try:
            if any(asked % 97 == 0 for asked in group):
                raise OperationalError(str(sorted(group)))
            if any(asked % 31 == 0 for asked in group):
                raise ValueError(str(sorted(group)))
            carried_out.update(group)
            return [-asked for asked in group]
        finally:
            at_work.release()

    combiner = Combiner(carry_out, most=chance.choice([1, 5, 40]))

    strange: list[int] = []  # failed for what is no cause of theirs

    def client(numbers: Sequence[int]) -> int:
        answered = 0
        for number in numbers:
            try:
                assert combiner.ask(number, size=number % 3 + 1) == -number
                answered += 1
            except ValueError:
                strange.extend([] if number % 31 == 0 else [number])
            except OperationalError as error:
                strange.extend([] if number in numbers_of(error) else [number])
        return answered

    requests = list(range(1, 2001))
    chance.shuffle(requests)
    futures = [threads.submit(client, requests[place::32]) for place in range(32)]
    assert sum(future.result(60) for future in futures) == carried_out.total()
    assert max(carried_out.values()) == 1
    assert not strange


def numbers_of(error: OperationalError) -> list[int]:
    return [int(number) for number in str(error).strip("[]").split(", ")]


def test_a_child_process_does_not_wait_for_a_leader_that_it_has_not(threads):
    work = Work()
    combiner = Combiner(work, most=100)
    futures = queued(combiner, work, threads, [1])
    child = os.fork()
    if child == 0:
        work.gate.set()
        asking = threading.Thread(target=lambda: os._exit(0 if combiner.ask("c") == "answer c" else 1), daemon=True)
        asking.start()
        asking.join(10)
        os._exit(2)  # it waits
    _, status = os.waitpid(child, 0)
    work.gate.set()
    assert os.waitstatus_to_exitcode(status) == 0
    assert [future.result(20) for future in futures] == ["answer first", "answer 1"]


def make_limit(**figures: Any) -> Limit:
    limit = Limit.objects.create(**{"name": "hot", "service": "svc", "scope": "project", "capacity": 1000, **figures})
    forget()
    return limit


def call(**fields: Any) -> Call:
    return Call(Subject("svc", "write", "acme", "u"), **fields)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("algorithm", ["sliding_window", "token_bucket", "fixed_window"])
def test_many_threads_are_never_let_through_above_the_cap(threads, algorithm):
    figures = {"refill_per_second": 0.000001} if algorithm == "token_bucket" else {"window_seconds": 3600}
    make_limit(capacity=150, algorithm=algorithm, **figures)

    def client(number: int) -> int:
        askings = [Asking("acme", tuple(call() for _ in range(1 + number % 3))) for _ in range(10)]
        decisions = [one for asking in askings for one in ask(asking).answer["decisions"]]
        assert all(one["kind"] in {"proceed", "defer"} for one in decisions)
        return sum(one["kind"] == "proceed" for one in decisions)

    assert sum(run_together(24, client, threads=threads)) == 150
    [gauge] = gauges()
    assert gauge.available < 1
    if algorithm != "token_bucket":
        assert gauge.used == 150


@pytest.mark.django_db(transaction=True)
def test_an_answer_is_committed_before_anybody_has_it(threads):
    make_limit(unit="in_flight", algorithm="concurrency", capacity=1000)
    url = database_url()

    def client(number: int) -> list[str]:
        missing = []
        with psycopg.connect(url, autocommit=True) as other:
            for turn in range(15):
                holder = f"api:acme:{number}.{turn}"
                [decision] = ask(Asking("acme", (call(holder=holder),))).answer["decisions"]
                assert decision["holder"] == holder
                found = other.execute("SELECT 1 FROM ratelimits_charge WHERE holder = %s", [holder]).fetchone()
                missing += [] if found else [holder]
        return missing

    assert [missing for missing in run_together(16, client, threads=threads) if missing] == []
    assert Charge.objects.count() == 16 * 15


@pytest.mark.django_db
def test_a_caller_in_a_transaction_is_refused_since_it_could_take_back_what_others_were_told():
    make_limit()
    with transaction.atomic(), pytest.raises(RuntimeError, match="durable"):
        ask(Asking("acme", (call(),)))
    assert ask(Asking("acme", (call(),))).answer["decisions"][0]["kind"] == "proceed"


@pytest.mark.django_db
def test_projects_on_their_way_are_refused_uncounted_and_the_others_of_the_group_get_their_own_answers():
    for name in ("here", "moving"):
        make_project(name)
    Project.objects.filter(pk="moving").update(move=ProjectMove.MOVING)
    Limit.objects.create(name="hot", service="svc", scope="project", capacity=1000)
    forget()
    group = [
        Asking(name, (Call(Subject("svc", "write", name)),) * count)
        for name, count in (("moving", 1), ("here", 1), ("here", 3), ("moving", 1))
    ]
    refused, single, threefold, refused_too = _carry_out(group)
    assert isinstance(refused, ProjectMoving)
    assert isinstance(refused_too, ProjectMoving)
    assert isinstance(single, Reply)
    assert isinstance(threefold, Reply)
    assert [len(one.answer["decisions"]) for one in (single, threefold)] == [1, 3]
    [gauge] = gauges()
    assert gauge.used == 4
