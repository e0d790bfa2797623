"""R4 with Patroni, etcd and HAProxy as deploy/ha/ configures them: hosts die and hang, and nobody does anything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.faults.failovers import WORKING_AGAIN_SECONDS, Load, under_load
from tests.faults.ledger import Ledger
from tests.support.patroni import Host, Hosts, patroni_hosts
from tests.support.processes import wait_for

TTL_SECONDS = 20  # as in deploy/ha/patroni.yaml
NOTICED_SECONDS = 15  # beyond it: an election of etcd's, a turn of Patroni's loop, the promotion

pytestmark = [pytest.mark.proves("R4"), pytest.mark.soak]


@pytest.fixture
def hosts(django_db_blocker: Any) -> Iterator[Hosts]:
    with django_db_blocker.unblock(), patroni_hosts() as running:
        yield running


def test_a_host_that_dies_and_one_that_hangs_cost_some_seconds_and_nothing_else(
    hosts: Hosts, ledger: Ledger, figures: Any
):
    gone_for = []
    with under_load(ledger) as load:
        load.producers.wait_for_more(50)
        begun = load.clock.now()
        hosts.one.die()
        gone_for.append(promoted(hosts.two, load, begun))
        hosts.bring_back(hosts.one)
        load.producers.wait_for_more(50)
        begun = load.clock.now()
        hosts.two.freeze()
        gone_for.append(promoted(hosts.one, load, begun))
        hosts.two.thaw()  # it still takes itself for the primary
        wait_for(lambda: hosts.two.serves_as("sync"), seconds=120, what="the frozen primary as a standby")
        load.producers.wait_for_more(50)
    killed, hung = (f"{seconds:.1f}" for seconds in gone_for)
    figures(f"{hosts.versions}: no primary for {killed} s after a host died, for {hung} s after one hung; {load.told}")
    assert max(load.working_after) <= WORKING_AGAIN_SECONDS
    assert max(gone_for) <= TTL_SECONDS + NOTICED_SECONDS


def promoted(host: Host, load: Load, begun: float) -> float:
    """Wait until a host is the primary and work goes on; how long there was no primary."""
    wait_for(lambda: host.serves_as("primary"), what="the promotion")
    promoted_at = load.clock.now()
    load.wait_for_work(promoted_at=promoted_at)
    return promoted_at - begun
