"""Limits of the benchmarks' own service, and jobs that they count."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from jobs.services.submit.submit import submit_batch
from ratelimits.limits import catalogue
from ratelimits.models import Limit

from .seeding import PROJECT, one_project

SERVICE = "bench"
USERS = tuple(UUID(int=0x4000_8000_0000_0000_0000 + number) for number in range(10))
PLENTY = 1_000_000_000.0


def never_binding() -> None:
    """Make a limit for each user and one for the project, of the default algorithms; both always have room."""
    write = {"service": SERVICE, "call_type": "write"}
    Limit.objects.create(
        **write,
        name="bench-project",
        scope="project",
        algorithm="token_bucket",
        capacity=PLENTY,
        refill_per_second=PLENTY,
    )
    Limit.objects.create(**write, name="bench-user", scope="project_user", algorithm="sliding_window", capacity=PLENTY)
    catalogue.forget()


def users_batch(count: int, *, limited: bool) -> None:
    """Submit a batch of no-op jobs of ten users, with or without limits that count them."""
    one_project()
    if limited:
        never_binding()
    submit_batch(_lines(count), project_id=PROJECT, actor="bench")


def _lines(count: int) -> Iterator[bytes]:
    text = b'{"kind": "bench.noop", "user_id": "%s", "payload": {"row": %d, "text": "a value of ordinary length"}}'
    users = [str(user).encode() for user in USERS]
    for number in range(count):
        yield text % (users[number % len(users)], number)
