"""R13: a client is killed while the server is away, both come back: nothing is lost and nothing is counted twice."""

from __future__ import annotations

import signal
import sys
import textwrap
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest

from ratelimits.models import UsageEvent
from ratelimits.usage.ledger import check_ledger
from tests.api.conftest import key_for
from tests.client.commands import ENVIRON, calls_of, returned
from tests.dashboards.live.conftest import web_process
from tests.factories import make_allowance
from tests.support.processes import RunningProcess, free_port, started, wait_for
from tests.support.typescript import NODE_OPTIONS, PACKAGE, node

pytestmark = [pytest.mark.usefixtures("transactional_db"), pytest.mark.proves("R13")]

USER = UUID(int=13)
WORKERS = 4

# The provider's own record of a call is one line, written at once; `done` is printed when the use has returned.
APP = textwrap.dedent(
    """
    import os, random, sys, threading, time
    from queueops_client import ClientError, UsageTracker
    address, key, user, outbox, calls, workers = sys.argv[1:]
    provider = os.open(calls, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    tracker = UsageTracker(address, key, user_id=user, path=outbox, credit=1.0, gather_seconds=0.1)
    charged = dict(line.split() for line in open(calls))
    for intent in tracker.report().intents:
        tokens = charged.get(intent.event_id)
        tracker.resolve(intent.event_id, tokens=tokens and int(tokens))
    while True:
        try:
            tracker.standing()
            break
        except ClientError:
            time.sleep(0.05)  # the server is not up yet

    def work():
        while True:
            with tracker.use(estimate=100, service="gemini") as usage:
                time.sleep(0.01)  # a call takes a while; without it a minute's outage would fill the outbox
                tokens = random.randint(1, 100)
                os.write(provider, f"{usage.event_id} {tokens}\\n".encode())
                usage.tokens = tokens
            os.write(1, f"done {usage.event_id}\\n".encode())

    if int(workers):
        for thread in [threading.Thread(target=work) for _ in range(int(workers))]:
            thread.start()
    else:
        tracker.flush(timeout=30)
        tracker.close()
        print("flushed", flush=True)
    """
)


CALL_SECONDS = "0.01"  # as above


def python_app(*given: str) -> tuple[str, ...]:
    return (sys.executable, "-c", APP, *given)


def typescript_app(*given: str) -> tuple[str, ...]:
    return (node(), NODE_OPTIONS, str(PACKAGE / "test/app.mjs"), *given, CALL_SECONDS)


Command = Callable[..., tuple[str, ...]]


def has_gone_on(client: RunningProcess, before: set[UUID]) -> bool:
    return len(returned(client) - before) > 20


@pytest.mark.parametrize("command", [python_app, typescript_app], ids=["python", "typescript"])
@pytest.mark.parametrize(
    ("rounds", "down_seconds"), [(2, 2.0), pytest.param(3, 60.0, marks=pytest.mark.soak)], ids=["short", "long"]
)
def test_r13_what_was_used_while_the_server_was_away_is_counted_once_after_both_were_killed(
    tmp_path: Path, rounds: int, down_seconds: float, command: Command
):
    make_allowance("acme", unit="tokens", quota=10**9)
    key = key_for("acme", scopes=["usage"])
    port, record = free_port(), tmp_path / "calls"
    settings = {"QUEUEOPS_PORT": str(port)}
    address = f"http://127.0.0.1:{port}"
    ended: set[UUID] = set()

    def app(workers: int) -> AbstractContextManager[RunningProcess]:
        given = (address, key, str(USER), str(tmp_path / "outbox.sqlite3"), str(record), str(workers))
        return started(*command(*given), environ=ENVIRON)

    def has_begun(client: RunningProcess, count: int) -> bool:
        # What the process before it had left in the outbox may be counted before this one has made a single use.
        return len(returned(client)) > 20 and UsageEvent.objects.count() > count + 20

    for _ in range(rounds):
        with app(WORKERS) as client:
            with web_process(**settings) as (_, web):
                wait_for(partial(has_begun, client, UsageEvent.objects.count()), seconds=60, what="uses and events")
                web.stop(signal.SIGKILL)
            before = returned(client)
            time.sleep(down_seconds)  # the outage itself
            wait_for(partial(has_gone_on, client, before), what="uses without a server")
            client.stop(signal.SIGKILL)
            ended |= returned(client)
    with web_process(**settings), app(0) as client:
        client.wait_for_output("flushed", seconds=60)
    calls = calls_of(record)
    counted = list(UsageEvent.objects.values_list("event_id", "tokens"))
    assert ended <= dict(counted).keys(), "a use that had returned was lost"
    assert sorted(counted) == sorted(calls.items()), "each call, once"
    assert check_ledger().differences == []
