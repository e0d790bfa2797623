"""How far past the quota clients can get: their real rules, files and steps, in every order of events."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from queueops_client.errors import ApiError, Unreachable
from queueops_client.exchange import Pause, Received
from queueops_client.transport import resumed
from queueops_client.usage.clock import ServerClock
from queueops_client.usage.desk import Desk
from queueops_client.usage.errors import QuotaUnavailable
from queueops_client.usage.outbox import Outbox
from queueops_client.usage.policies import Policy, Rules
from usage_server import UsageServer

USER = str(uuid4())
QUOTA = 1000
CREDIT = 120
MONTH_SECONDS = 40 * 86400  # no reservation ends while its call lasts: what the bound presumes


@dataclass
class Going:
    """Steps that wait for an answer. `answer`: the server's, still on its way."""

    desk: Desk
    steps: Any
    request: Any
    usage: Any = None
    answer: Any = None


class World:
    def __init__(self, directory: Path, *, clients: int, rules: Rules, policy: str = "strict"):
        self.server = UsageServer(quota=QUOTA, reservation_seconds=MONTH_SECONDS, policy=policy)
        self.desks = []
        for number in range(clients):
            clock = ServerClock()
            outbox = Outbox(directory / f"{number}.sqlite3", clock=clock)
            self.desks.append(Desk(outbox, clock, rules, user_id=USER, only_user=None))
        self.going: list[Going] = []
        self.calling: list[tuple[Desk, Any]] = []
        self.spent = 0

    def close(self) -> None:
        for desk in self.desks:
            desk.outbox.close()

    def advance(self, going: Going, outcome: Any) -> None:
        """Take the steps to their next request."""
        try:
            step = resumed(going.steps, outcome)
            while isinstance(step, Pause):
                step = resumed(going.steps, None)
        except StopIteration:
            if going.usage is not None:
                self.calling.append((going.desk, going.usage))
        except (ApiError, QuotaUnavailable, Unreachable):
            pass  # the use was refused, or the flush is tried again some time
        else:
            going.request, going.answer = step, None
            self.going.append(going)

    def begin(self, desk: Desk, estimate: int) -> None:
        usage = desk.usage(estimate=estimate, service="", user_id=None)
        self.advance(Going(desk, desk.admit(usage), None, usage), None)

    def flush(self, desk: Desk) -> None:
        self.advance(Going(desk, desk.flusher.flush(), None), None)

    def arrive(self, going: Going) -> None:
        """A request reaches the server."""
        going.answer = self.ask(going.request)

    def ask(self, request: Any) -> Received:
        body = json.loads(request.content) if request.content else None
        reply = self.server.answer(SimpleNamespace(path=request.path, query=request.params or {}, json=body))
        return Received(reply.status, {}, json.dumps(reply.body).encode())

    def end(self, number: int, *, tokens: int | None) -> None:
        desk, usage = self.calling.pop(number)
        desk.finish(usage, tokens)
        self.spent += tokens or 0

    def step(self, rng: random.Random) -> None:
        match rng.choice(["begin"] * 4 + ["flush", "arrive", "answer", "end"] + ["arrive", "answer", "end"]):
            case "begin":
                self.begin(rng.choice(self.desks), rng.choice([1, 7, 30, 60]))
            case "flush":
                self.flush(rng.choice(self.desks))
            case "arrive":
                sent = [going for going in self.going if going.answer is None]
                if sent:
                    self.arrive(rng.choice(sent))
            case "answer" if self.going:
                going = self.going.pop(rng.randrange(len(self.going)))
                lost = rng.random() < 0.2
                answer = Unreachable("lost") if lost or going.answer is None else going.answer
                self.advance(going, answer)
            case "end" if self.calling:
                number = rng.randrange(len(self.calling))
                estimate = self.calling[number][1].intent.estimate
                self.end(number, tokens=rng.choice([estimate, estimate, estimate // 2, None]))

    def settle(self) -> None:
        """Let everything come to its end, with a network that works."""
        while self.going or self.calling:
            if self.calling:
                self.end(0, tokens=self.calling[0][1].intent.estimate)
            else:
                going = self.going.pop(0)
                if going.answer is None:
                    self.arrive(going)
                self.advance(going, going.answer)
        for desk in self.desks:
            self.flush(desk)
            while self.going:
                going = self.going.pop(0)
                self.arrive(going)
                self.advance(going, going.answer)


@contextmanager
def world(**options: Any) -> Iterator[World]:
    memory = Path("/dev/shm")  # noqa: S108 (a directory of the test's own in it)
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as directory:
        made = World(Path(directory), **options)
        try:
            yield made
        finally:
            made.close()


def hybrid(threshold: int = 100) -> Rules:
    return Rules(Policy.HYBRID, threshold=threshold, credit=CREDIT)


@settings(phases=(Phase.reuse, Phase.generate))
@given(rng=st.randoms(use_true_random=False), clients=st.integers(1, 4), threshold=st.sampled_from([0, 100, 300]))
def test_hybrid_clients_pass_the_quota_by_no_more_than_the_credit_of_all_but_one(rng, clients, threshold):
    with world(clients=clients, rules=hybrid(threshold)) as at:
        for _ in range(rng.choice([60, 200])):
            at.step(rng)
        at.settle()
        assert at.server.used(USER) == at.spent, "every use that ended well is counted once"
        assert at.spent <= QUOTA + (clients - 1) * CREDIT


@settings(phases=(Phase.reuse, Phase.generate))
@given(rng=st.randoms(use_true_random=False), clients=st.integers(1, 4))
def test_strict_clients_never_pass_the_quota(rng, clients):
    with world(clients=clients, rules=Rules(Policy.STRICT)) as at:
        for _ in range(120):
            at.step(rng)
        at.settle()
        assert at.server.used(USER) == at.spent <= QUOTA


def test_the_bound_is_reached_by_clients_that_lose_the_network_at_the_worst_moment():
    with world(clients=3, rules=hybrid(0)) as at:
        for desk in at.desks:
            desk_standing = Going(desk, desk.standing(USER), None)
            at.advance(desk_standing, None)
            at.going.remove(desk_standing)
            at.arrive(desk_standing)
            at.advance(desk_standing, desk_standing.answer)
        for desk in at.desks[1:]:  # two use their whole credit, and nobody hears of it
            for _ in range(CREDIT // 30):
                at.begin(desk, 30)
        assert len(at.calling) == 2 * (CREDIT // 30)
        first = at.desks[0]
        while True:  # the third asks before each use, as its credit is spent, until the server says no
            at.begin(first, 20)
            if at.going:
                going = at.going.pop()
                at.arrive(going)
                refused = going.answer.status == 409
                at.advance(going, going.answer)
                if refused:
                    break
        at.settle()
        assert at.server.used(USER) == at.spent == QUOTA + 2 * CREDIT


def test_one_client_alone_never_passes_the_quota_though_the_server_has_not_heard_of_all_it_used():
    with world(clients=1, rules=hybrid(0)) as at:
        [desk] = at.desks
        for _ in range(200):
            at.begin(desk, 30)
            while at.going:
                going = at.going.pop()
                if going.request.path.endswith("/ingest/"):
                    at.advance(going, Unreachable("only reports are lost"))
                else:
                    at.arrive(going)
                    at.advance(going, going.answer)
        at.settle()
        assert at.server.used(USER) == at.spent
        assert QUOTA - 30 < at.spent <= QUOTA
