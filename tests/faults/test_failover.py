"""R4: the primary's host dies under load, its synchronous standby is promoted, and nobody starts anything anew."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.faults.failovers import WORKING_AGAIN_SECONDS, under_load
from tests.faults.ledger import Ledger
from tests.support.standby import Pair, primary_and_standby

pytestmark = pytest.mark.proves("R4")


@pytest.fixture
def pair(django_db_blocker: Any) -> Iterator[Pair]:
    with django_db_blocker.unblock(), primary_and_standby() as running:
        yield running


@pytest.mark.parametrize("failovers", [pytest.param(1, id="short"), pytest.param(5, id="long", marks=pytest.mark.soak)])
def test_a_failover_loses_no_acknowledged_submit_repeats_no_effect_and_needs_nobody(
    failovers: int, pair: Pair, ledger: Ledger, figures
):
    with under_load(ledger) as load:
        for number in range(failovers):
            if number:
                pair.add_standby()
            load.producers.wait_for_more(50)
            pair.kill_primary()
            load.wait_until_refused()
            pair.promote()
            load.wait_for_work(promoted_at=load.clock.now())
    figures(load.told)
    assert max(load.working_after) <= WORKING_AGAIN_SECONDS
