"""The TypeScript tracker's process is killed again and again, two of them at one outbox: every use is counted once."""

from __future__ import annotations

import random
import signal
import time
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import UUID

import pytest

from ratelimits.models import UsageEvent
from ratelimits.usage.ledger import check_ledger
from tests.api.conftest import key_for
from tests.client.commands import calls_of, returned
from tests.factories import make_allowance
from tests.support.processes import RunningProcess, started, wait_for
from tests.support.typescript import NODE_OPTIONS, PACKAGE, node

pytestmark = pytest.mark.usefixtures("transactional_db")

USER = UUID(int=23)
PROCESSES = 2
WORKERS = 4


@dataclass(frozen=True, slots=True)
class Form:
    """At least so many uses and kills."""

    uses: int
    kills: int


FORMS = [
    pytest.param(Form(uses=800, kills=6), id="short"),
    pytest.param(Form(uses=50_000, kills=60), id="long", marks=pytest.mark.soak),
]


@pytest.mark.parametrize("form", FORMS)
def test_every_use_is_counted_once_however_often_its_process_was_killed(
    form: Form, address: str, tmp_path: Path, figures
):
    make_allowance("acme", unit="tokens", quota=10**9)
    key = key_for("acme", scopes=["usage"], requests_per_minute=1_000_000)
    record, outbox = tmp_path / "calls", tmp_path / "outbox.sqlite3"
    record.touch()
    dice = random.Random(1)  # noqa: S311 - draws moments
    ended: set[UUID] = set()

    def app(workers: int) -> AbstractContextManager[RunningProcess]:
        given = (address, key, str(USER), str(outbox), str(record), str(workers), "0")
        return started(node(), NODE_OPTIONS, str(PACKAGE / "test/app.mjs"), *given)

    began, kills = time.monotonic(), 0
    while kills < form.kills or carried_out(record) < form.uses:
        target = carried_out(record) + max(1, form.uses // form.kills)
        with ExitStack() as stack:
            apps = [stack.enter_context(app(WORKERS)) for _ in range(PROCESSES)]
            for one in apps:
                wait_for(partial(has_worked, one, record, target), what="uses")
                time.sleep(dice.uniform(0, 0.05))
                one.stop(signal.SIGKILL)
                kills += 1
            ended |= {use for one in apps for use in returned(one)}
    seconds = time.monotonic() - began
    with app(0) as last:
        last.wait_for_output("flushed", seconds=120)

    calls = calls_of(record)
    counted = list(UsageEvent.objects.values_list("event_id", "tokens"))
    assert ended <= dict(counted).keys(), "a use that had returned was lost"
    assert sorted(counted) == sorted(calls.items()), "each call, once"
    assert check_ledger("acme").differences == []
    assert not list(tmp_path.glob("*.owner")), "a seat of the dead was left"
    figures(f"{len(calls):,} uses in {seconds:.0f} s, {kills} kills, {len(calls) - len(ended)} cut off")


def has_worked(process: RunningProcess, record: Path, target: int) -> bool:
    assert process.runs, process.output
    return carried_out(record) >= target


def carried_out(record: Path) -> int:
    return record.read_bytes().count(b"\n")
