"""Apps that report usage and reserve it, each a process that a test may kill at any moment."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.process import BaseProcess
from typing import Any
from uuid import UUID, uuid4

from django.db import connections
from django.db.models.functions import Now
from django.utils import timezone

from ratelimits.errors import QuotaExceeded
from ratelimits.models import UsageReservation
from ratelimits.usage.ingest import Reported, ingest
from ratelimits.usage.release import cancel
from ratelimits.usage.reserve import reserve
from tests.faults.forks import fork, forked

PROJECT = "acme"


@dataclass
class App:
    """
    A process and its successors after each kill; what it keeps in shared memory outlives it.

    `answered`: how many steps it knows to be done, as an outbox does: its successor goes on there, and repeats the
    one that was cut off.
    """

    run: Callable[[Any], None]

    def __post_init__(self) -> None:
        self.answered = fork.Value("q", 0)
        self.kills = 0
        self.process = self.start()

    def start(self) -> BaseProcess:
        return forked(self.run, self.answered)

    def kill(self) -> None:
        pid = self.process.pid
        if pid is not None and self.process.is_alive():
            os.kill(pid, signal.SIGKILL)
            self.process.join()
            self.kills += 1
            self.process = self.start()

    @property
    def is_done(self) -> bool:
        """Ended by itself."""
        if not self.process.is_alive() and self.process.exitcode:
            raise AssertionError(f"an app ended with {self.process.exitcode}")
        return not self.process.is_alive()


def report_all(batches: Sequence[Sequence[Reported]]) -> Callable[[Any], None]:
    """An app that reports batch after batch, and each again of which it does not know that it arrived."""

    def run(answered: Any) -> None:
        while answered.value < len(batches):
            ingest(batches[answered.value], project_id=PROJECT)
            answered.value += 1

    return run


def reserve_all(users: Sequence[UUID], *, threads: int, flows: int, at_once: int) -> Callable[[Any], None]:
    """
    An app whose threads reserve, and then confirm, cancel, do both, or go away; each time with less than reserved.

    Args:
        flows: Of each thread.
        at_once: Connections of the process.
    """

    def run(answered: Any) -> None:
        seed, room = time.time_ns(), threading.BoundedSemaphore(at_once)

        def client(number: int) -> None:
            drawn = random.Random(seed + number)  # noqa: S311 - no secret
            for _ in range(flows):
                with room:
                    _flow(drawn, users)
                    connections.close_all()

        clients = [threading.Thread(target=client, args=(number,)) for number in range(threads)]
        for one in clients:
            one.start()
        for one in clients:
            one.join()

    return run


def _flow(drawn: random.Random, users: Sequence[UUID]) -> None:
    user, amount, key = drawn.choice(users), drawn.randint(1, 20), str(uuid4())
    try:
        made = reserve(project_id=PROJECT, user_id=user, amount=amount, idempotency_key=key)
        again = reserve(project_id=PROJECT, user_id=user, amount=amount, idempotency_key=key)
    except QuotaExceeded:
        return
    assert again.reservation_id == made.reservation_id
    held = made.reservation_id
    event = Reported(uuid4(), user, drawn.randint(0, amount), timezone.now(), held)
    steps: list[Callable[[], object]] = []
    match drawn.randrange(4):
        case 0 | 1:
            steps = [lambda: ingest([event], project_id=PROJECT)] * drawn.randint(1, 3)
        case 2:
            steps = [lambda: cancel(held, project_id=PROJECT)] * drawn.randint(1, 2)
        case 3:
            steps = [lambda: UsageReservation.objects.filter(pk=held).update(expires_at=Now() - timedelta(seconds=1))]
    for step in steps:
        step()


def run_killing(apps: Sequence[App], *, kills: int, every: tuple[float, float], meanwhile: Callable[[], None]) -> None:
    """Until all of the apps have ended: kill a random one now and then, `kills` times at most."""
    drawn = random.Random(time.time_ns())  # noqa: S311 - no secret
    due = time.monotonic() + drawn.uniform(*every)
    while not all(app.is_done for app in apps):
        meanwhile()
        if time.monotonic() > due and sum(app.kills for app in apps) < kills:
            drawn.choice([app for app in apps if not app.is_done] or [apps[0]]).kill()
            due = time.monotonic() + drawn.uniform(*every)
    with contextlib.suppress(ValueError):
        for app in apps:
            app.process.close()
