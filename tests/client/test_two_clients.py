"""
Two clients and a server: the line is cut, slow and forgetful, and all of them are killed.

What the provider carried out is what the server counts in the end, call by call.
"""

from __future__ import annotations

import json
import random
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.db.models.functions import Now

from queueops.tenancy.models import ProducerKey, Scope
from queueops_client.usage.policies import NEAR
from ratelimits.models import UsageEvent, UsageReservation, UsageTracking
from ratelimits.usage.allowances import set_allowance, set_override
from ratelimits.usage.ledger import check_ledger
from ratelimits.usage.release import expire_reservations
from tests.client.app import ESTIMATE, MAX_PROMPT_LENGTH, OUTPUT_TOKENS, Order
from tests.client.commands import ENVIRON
from tests.dashboards.live.conftest import web_process
from tests.factories import make_project
from tests.support.bad_line import BadLine, bad_line
from tests.support.processes import RunningProcess, free_port, started, wait_for
from tests.support.sandbox import Sandbox

pytestmark = pytest.mark.usefixtures("transactional_db")

PROJECT = "acme"
STRICT, HYBRID, OPTIMISTIC = (str(UUID(int=number)) for number in (1, 2, 3))
POLICIES = {STRICT: "strict", HYBRID: "hybrid", OPTIMISTIC: "optimistic"}
MEAN_TOKENS = MAX_PROMPT_LENGTH // 2 + OUTPUT_TOKENS
WORKERS = 4

Charges = dict[tuple[str, str], int]  # tokens by user and call


@dataclass(frozen=True, slots=True)
class Form:
    """At least so many calls, and each trouble so many times."""

    calls: int
    rounds: int
    pause_seconds: float

    @property
    def quota(self) -> int:
        """Of the strict and the hybrid user: reached before the end, not long before."""
        return self.calls * MEAN_TOKENS // len(POLICIES) * 4 // 5


FORMS = [
    pytest.param(Form(calls=1_000, rounds=1, pause_seconds=0.2), id="short"),
    pytest.param(Form(calls=50_000, rounds=10, pause_seconds=3), id="long", marks=pytest.mark.soak),
]


class Again:
    """A process that can be killed and started once more."""

    def __init__(self, start: Callable[[], AbstractContextManager[RunningProcess]]) -> None:
        self.kills = 0
        self._start = start
        self._stack = ExitStack()
        self.process = self._stack.enter_context(start())

    def kill(self) -> None:
        assert self.process.runs, self.process.output
        self.process.stop(signal.SIGKILL)
        self.kills += 1

    def restart(self) -> None:
        self._stack.close()
        self.process = self._stack.enter_context(self._start())

    def close(self) -> None:
        self._stack.close()


@dataclass(frozen=True, slots=True)
class Scene:
    """All that takes part."""

    line: BadLine
    web: Again
    apps: list[Again]
    orders: list[Order]
    sandbox: Sandbox

    def carried_out(self) -> int:
        return int(self.sandbox.counters()["by_status"].get("200", 0))


@pytest.mark.parametrize("form", FORMS)
def test_the_server_counts_exactly_what_the_provider_carried_out(form: Form, sandbox: Sandbox, tmp_path: Path, figures):
    begun = time.monotonic()
    with breaches() as breached, scene(form, sandbox, tmp_path) as all_of_them:
        spoil(all_of_them, form)
        wait_for(lambda: all_of_them.carried_out() >= form.calls, seconds=3_600, what=f"{form.calls} calls")
        outcomes = stop_apps(all_of_them)
        seconds = time.monotonic() - begun
        resolved = clear_up(all_of_them)
        beyond = breached(STRICT)

    assert resolved["left"] == 0
    charged = charges(sandbox)
    assert len(charged) >= form.calls
    assert counted() == charged
    months = {str(month.user_id): month for month in UsageTracking.objects.filter(project=PROJECT)}
    for user, month in months.items():
        assert month.used == sum(tokens for (whose, _), tokens in charged.items() if whose == user)

    assert beyond == [], "a strict user stood above the quota"
    assert outcomes["refused"][STRICT] > 0, "the strict user never reached the quota"
    assert months[HYBRID].used - form.quota <= hybrid_bound(all_of_them, form)

    UsageReservation.objects.filter(status="active").update(expires_at=Now())
    expire_reservations()
    assert check_ledger(PROJECT).differences == []
    assert not UsageTracking.objects.exclude(reserved=0).exists()
    line, web, kills = all_of_them.line, all_of_them.web.kills, sum(app.kills for app in all_of_them.apps)
    figures(
        f"{len(charged):,} calls in {seconds:.0f} s, {sum(charged.values()):,} tokens, each counted once; "
        f"{kills} kills of clients, {web} of the server, {line.answers_lost} answers lost; "
        f"cut off by kills: {resolved['happened']} calls that happened, {resolved['never happened']} that did not; "
        f"quota {form.quota:,}: used by the strict user {months[STRICT].used:,}, by the hybrid {months[HYBRID].used:,}"
    )


def test_hybrid_clients_that_are_cut_off_together_stop_at_the_stated_bound(sandbox: Sandbox, tmp_path: Path, figures):
    form = Form(calls=1_000, rounds=0, pause_seconds=0)
    with scene(form, sandbox, tmp_path, {HYBRID: "hybrid"}) as everybody:
        wait_for(lambda: everybody.carried_out() >= 60, seconds=60, what="60 calls")
        everybody.line.cut()
        offline = wait_until_still(everybody, form)
        everybody.line.mend()
        wait_for(lambda: everybody.carried_out() > offline, seconds=60, what="a call after the cut")
        wait_until_still(everybody, form)
        assert stop_apps(everybody)["refused"][HYBRID] > 0
        assert clear_up(everybody)["left"] == 0
    used = UsageTracking.objects.get(project=PROJECT).used
    assert used == sum(charges(sandbox).values())
    assert used - form.quota <= hybrid_bound(everybody, form)
    figures(f"{offline} calls until they stood still offline; quota {form.quota:,}, used {used:,}")


def wait_until_still(everybody: Scene, form: Form) -> int:
    """
    Wait until there was no call for a while; how many there were.

    Looks are counted, not seconds: where the machine stood still between two of them, so did the clients.
    """
    count, unchanged = -1, 0
    while unchanged < 50:
        now = everybody.carried_out()
        assert now < form.calls, "nothing holds them back"
        unchanged = unchanged + 1 if now == count else 0
        count = now
        time.sleep(0.02)
    return count


def hybrid_bound(everybody: Scene, form: Form) -> int:
    """How far a quota can be passed, as the client's README states it: (n - 1) x credit, of n outboxes."""
    return (len({order.outbox for order in everybody.orders}) - 1) * int(NEAR * form.quota)


@contextmanager
def scene(form: Form, sandbox: Sandbox, directory: Path, policies: dict[str, str] = POLICIES) -> Iterator[Scene]:
    sandbox.turn(
        gemini={
            "requests_per_minute": None,
            "tokens_per_minute": None,
            "requests_per_day": None,
            "output_tokens": OUTPUT_TOKENS,
        },
        error_rates={"503": 0.02},
    )
    key = set_up(form)
    port = free_port()
    with ExitStack() as stack:
        web = Again(partial(web_on, port))
        stack.callback(web.close)
        line = stack.enter_context(bad_line(port))
        first = Order(line.url, key, sandbox.url, str(directory / "first.db"), policies, WORKERS)
        second = replace(first, outbox=str(directory / "second.db"))
        # The second client is two processes with one outbox.
        orders = [first, replace(second, seed=1), replace(second, seed=2, asynchronous=True)]
        apps = [Again(partial(started, *command(order), environ=ENVIRON)) for order in orders]
        for app in apps:
            stack.callback(app.close)
        yield Scene(line, web, apps, orders, sandbox)


def set_up(form: Form) -> str:
    """Make the project, its allowance and a key; the key's text."""
    project = make_project(PROJECT)
    by: dict[str, Any] = {"actor": "user:1", "reason": "test"}
    set_allowance(
        PROJECT,
        unit="tokens",
        quota=form.calls * ESTIMATE * 10,
        policy="strict",
        time_zone="UTC",
        reservation_seconds=3_600,
        **by,
    )
    for user in (STRICT, HYBRID):
        set_override(PROJECT, UUID(user), quota=form.quota, **by)
    return ProducerKey.issue(project, name="app", scopes=[Scope.USAGE], requests_per_minute=10_000_000)[1]


@contextmanager
def web_on(port: int) -> Iterator[RunningProcess]:
    with web_process(QUEUEOPS_PORT=str(port)) as (_, process):
        yield process


def command(order: Order) -> tuple[str, ...]:
    return (sys.executable, "-m", "tests.client.app", order.text())


def spoil(everybody: Scene, form: Form) -> None:
    """Make every trouble, in an order drawn anew in each round."""
    dice = random.Random(1)  # noqa: S311 - draws troubles
    line, web = everybody.line, everybody.web
    troubles: list[Callable[[], None]] = [
        *(killing(app) for app in everybody.apps),
        killing(web),
        lambda: spell(line.cut, line, seconds=dice.uniform(0.3, 1.5)),
        lambda: spell(lambda: line.delay(0.1), line, seconds=1),
        lambda: lose_some(line),
    ]
    for app in everybody.apps:
        app.process.wait_for_output("working")
    for _ in range(form.rounds):
        for trouble in dice.sample(troubles, len(troubles)):
            time.sleep(dice.uniform(0, 2 * form.pause_seconds))
            trouble()


def killing(victim: Again) -> Callable[[], None]:
    def kill() -> None:
        victim.kill()
        victim.restart()

    return kill


def lose_some(line: BadLine) -> None:
    """Lose five answers; where there are fewer in a second, at least one."""
    before = line.answers_lost
    line.lose_answers(5)
    time.sleep(1)
    wait_for(lambda: line.answers_lost > before, what="a lost answer")
    line.mend()


def spell(begin: Callable[[], None], line: BadLine, *, seconds: float) -> None:
    begin()
    time.sleep(seconds)
    line.mend()


def stop_apps(everybody: Scene) -> dict[str, Counter[str]]:
    """Stop every app as an operator would; how calls ended in those that were not killed."""
    ended: dict[str, Counter[str]] = defaultdict(Counter)
    for app in everybody.apps:
        app.process.send(signal.SIGTERM)
    for app in everybody.apps:
        assert app.process.process.wait(120) == 0, app.process.output
        for name, by_user in json.loads(app.process.output.splitlines()[-1]).items():
            ended[name].update(by_user)
    wait_for(lambda: everybody.sandbox.counters()["in_flight"] == 0, what="the end of the last call")
    return ended


def clear_up(everybody: Scene) -> Counter[str]:
    """Start each client once more, to resolve what its killed processes left; what came of it."""
    resolved: Counter[str] = Counter()
    for order in {order.outbox: order for order in everybody.orders}.values():
        with started(*command(replace(order, works=False)), environ=ENVIRON) as process:
            assert process.process.wait(120) == 0, process.output
            resolved.update(json.loads(process.output.splitlines()[-1]))
    return resolved


def charges(sandbox: Sandbox) -> Charges:
    """What the provider charged, call by call."""
    calls = sandbox.calls(provider="gemini", status=200)
    charged = {(call["user"], call["effect_key"]): call["cost_tokens"] + OUTPUT_TOKENS for call in calls}
    assert len(charged) == len(calls), "an event's id was used for two calls"
    return charged


def counted() -> Charges:
    """What the server counted, event by event."""
    rows = UsageEvent.objects.filter(project=PROJECT).values_list("user_id", "event_id", "tokens")
    return {(str(user), str(event)): tokens for user, event, tokens in rows}


@contextmanager
def breaches() -> Iterator[Callable[[str], list[Any]]]:
    """Watch every version of a month's row; call with a user for those versions that stood above the quota."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            CREATE TABLE breaches (user_id uuid, quota bigint, used bigint, reserved bigint);
            CREATE FUNCTION note_breach() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
            BEGIN
                INSERT INTO breaches VALUES (NEW.user_id, NEW.quota, NEW.used, NEW.reserved);
                RETURN NULL;
            END $$;
            CREATE TRIGGER breach AFTER INSERT OR UPDATE ON ratelimits_usagetracking
               FOR EACH ROW WHEN (NEW.used + NEW.reserved > NEW.quota) EXECUTE FUNCTION note_breach();
            """
        )

        def found(user: str) -> list[Any]:
            cursor.execute("SELECT * FROM breaches WHERE user_id = %s", [user])
            return list(cursor.fetchall())

        try:
            yield found
        finally:
            cursor.execute(
                "DROP TRIGGER breach ON ratelimits_usagetracking; DROP FUNCTION note_breach; DROP TABLE breaches"
            )
