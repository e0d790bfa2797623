"""Web, workers, a socket and producers, which a failover must cost nothing but time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from jobs.models import Job, JobEvent
from jobs.states import JobState
from queueops.tenancy.models import ProducerKey
from tests.dashboards.live.conftest import web_process
from tests.factories import make_project
from tests.faults.clusters import Cluster, cluster
from tests.faults.ledger import Ledger
from tests.faults.producers import Producers
from tests.faults.records import PROJECT, crashes, wait_until_drained
from tests.support.awake import AwakeClock, awake
from tests.support.live import Watcher, live_client
from tests.support.own_server import reconnected
from tests.support.processes import wait_for

WORKING_AGAIN_SECONDS = 5.0


class Load:
    """
    Producers at work, and whoever serves them.

    Attributes:
        clock: Of the seconds below.
        working_after: For each failover the seconds from the promotion to the end of a job that was submitted after it.
        told: What there was, for the figures; known at the end.
    """

    def __init__(self, producers: Producers, ledger: Ledger, clock: AwakeClock) -> None:
        self.producers = producers
        self.clock = clock
        self.working_after: list[float] = []
        self.told = ""
        self._ledger = ledger

    def wait_until_refused(self) -> None:
        """Wait until a producer has noticed that the primary is gone."""
        refused = self.producers.refused
        wait_for(lambda: self.producers.refused > refused, what="the outage")

    def wait_for_work(self, *, promoted_at: float) -> None:
        """Wait until a job is done that was submitted after the promotion, which was at a time of the clock."""
        first = wait_for(self.producers.submit, what="an acknowledged submit after the promotion")
        wait_for(lambda: first in self._ledger.by_job(), what="the work after the promotion")
        self.working_after.append(self.clock.now() - promoted_at)
        wait_for(reconnected, what="this test's own connection")


@contextmanager
def under_load(ledger: Ledger) -> Iterator[Load]:
    """At the block's end nothing was lost, repeated, missed or started anew, or the test fails."""
    _, key = ProducerKey.issue(make_project(PROJECT), name="producer")
    app = {"QUEUEOPS_EXTRA_APPS": "tests.faults.app", "FAULTS_DIR": str(ledger.directory)}
    with (
        cluster(ledger) as running,
        web_process(**app) as (address, web),
        live_client(address) as client,
        awake() as clock,
    ):
        watcher = client.watch("me", key=key)
        seen_from = int(watcher.first("snapshot")["cursor"])
        producers = Producers(address, key)
        load = Load(producers, ledger, clock)
        before = _processes(running)
        with producers.at_work():
            yield load
        wait_until_drained()
        assert web.runs
        assert _processes(running) == before, "an executor ended"
        events = set(JobEvent.objects.filter(project_id=PROJECT, pk__gt=seen_from).values_list("pk", flat=True))
        wait_for(
            lambda: len(events - _seen_by(watcher)) <= _skipped(watcher), what="every event, or that it was left out"
        )
    stored = dict(Job.objects.values_list("pk", "status"))
    assert set(producers.acknowledged) <= stored.keys(), "an acknowledged submit was lost"
    assert set(stored.values()) == {JobState.COMPLETED}
    assert {len(entries) for entries in ledger.by_job().values()} == {1}, "a failover repeated an effect"
    assert ledger.by_job().keys() == stored.keys()
    assert crashes() == []
    load.told = (
        f"{len(load.working_after)} failovers, {len(producers.acknowledged)} acknowledged submits, 0 lost, 0 repeated, "
        f"{producers.refused} refused meanwhile, {len(events)} events, none missed, "
        f"{_skipped(watcher)} left out above the socket's rate; "
        f"working again {max(load.working_after):.1f} s after a promotion at most"
    )


def _processes(running: Cluster) -> set[psutil.Process]:
    return {psutil.Process(executor.pid) for executor in running.executors()} | {running.sentinel}


def _seen_by(watcher: Watcher) -> set[int]:
    return {event["id"] for event in watcher.events}


def _skipped(watcher: Watcher) -> int:
    """Events that the socket was told of as left out: it gets 200 a second at most."""
    return sum(message.get("skipped", 0) for message in watcher.of_type("event"))
