"""A relay loses its connection while it begins anew."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection, connections

from dashboards.live import relay as relay_module
from dashboards.live.events import OPS
from dashboards.live.relay import Relay
from jobs.models import Epoch
from queueops.core.database import connect_directly
from tests.factories import make_job
from tests.support.event_log import log_event, terminate_relays, writer
from tests.support.processes import wait_for

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("lost_before", ["_newest", "_rows"])
def test_watchers_of_a_log_that_was_put_back_are_told_although_the_connection_is_lost_meanwhile(
    lost_before: str, monkeypatch: pytest.MonkeyPatch
):
    job, before = make_job(), str(Epoch.objects.get())
    told: list[str] = []
    armed, is_over = [False], [False]

    def connect(**options: str) -> Any:
        if is_over[0]:
            raise relay_module._LoopEnded
        return connect_directly(**options)

    def interrupted(real: Callable[..., Any]) -> Callable[..., Any]:
        def read(*given: Any, **how: Any) -> Any:
            if armed[0]:
                if str(Epoch.objects.get()) != before:
                    armed[0] = False
                    terminate_relays()
                connections.close_all()  # of the relay's thread
            return real(*given, **how)

        return read

    monkeypatch.setattr(relay_module, "connect_directly", connect)
    owner = relay_module if lost_before == "_newest" else Relay
    monkeypatch.setattr(owner, lost_before, interrupted(getattr(owner, lost_before)))

    def put_back() -> None:
        with writer() as one:
            ids = [log_event(one, job) for _ in range(5)]
        wait_for(lambda: relay._newest == max(ids), what="the last event")
        armed[0] = True
        with connection.cursor() as cursor:
            cursor.execute("TRUNCATE jobs_jobevent; SELECT setval('jobs_jobevent_id', %s)", [min(ids)])
        wait_for(lambda: told, what="the watchers' notice")
        connections.close_all()

    async def follow() -> None:
        relay.start()
        assert await relay.has_begun()
        try:
            await asyncio.to_thread(put_back)
        finally:
            is_over[0] = True
            await asyncio.to_thread(terminate_relays)

    relay = Relay({OPS: object()}, lambda events, cursor: None, lambda: told.append(relay.cursor.epoch))
    others = set(threading.enumerate())
    asyncio.run(follow())
    for one in set(threading.enumerate()) - others:
        one.join()  # the relay's: after this test it would connect again, and keep its sessions
    assert not armed[0], "the connection was never lost"
    assert told == [str(Epoch.objects.get())] != [before]
