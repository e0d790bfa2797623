"""R15, R16: sockets that read slowly or never cost neither the others anything nor the process its memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import psutil
import pytest

from jobs.models import Job
from tests.dashboards.live.conftest import web_process
from tests.factories import make_job
from tests.support.event_log import log_event, terminate_relays, writer
from tests.support.live import LiveClient, Watcher, live_client
from tests.support.processes import RunningProcess, wait_for

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.proves("R15")]

HEAVY = "x" * 900
OVERRUN = 2_000  # events: more than a socket is sent without an acknowledgement


@pytest.fixture
def quick(transactional_db: None) -> Iterator[tuple[LiveClient, RunningProcess]]:
    with (
        web_process(QUEUEOPS_EXTRA_APPS="tests.dashboards.live.quick") as (address, process),
        live_client(address) as client,
    ):
        yield client, process


def overrun(client: LiveClient, key: str) -> tuple[Job, Watcher]:
    """A job, and its watcher that acknowledged none of the events written since the snapshot."""
    job = make_job()
    watcher = client.watch(f"jobs/{job.pk}", key=key, acknowledges=False)
    watcher.first("snapshot")
    with writer() as one:
        ids = {log_event(one, job) for _ in range(OVERRUN)}
    assert len(ids) == OVERRUN
    return job, watcher


def test_a_socket_that_acknowledges_nothing_gets_the_state_and_is_closed(quick, key: str):
    job, mute = overrun(quick[0], key)
    state = mute.first("state")
    assert state["data"]["id"] == str(job.pk)
    assert len(mute.events) < 600 < OVERRUN
    assert mute.closed() == 4408


def test_a_socket_that_catches_up_gets_the_newest_state_and_events_again(client: LiveClient, key: str):
    """At a process that does not close it within seconds: it says nothing before it has fallen behind."""
    job, slow = overrun(client, key)
    slow.first("state")
    slow.send({"ack": slow.cursor})
    with writer() as one:
        last = log_event(one, job)

    def caught_up() -> bool:
        slow.send({"ack": slow.cursor})
        states = slow.of_type("state")
        return bool(states) and states[-1]["data"]["last_event"]["id"] == last

    wait_for(caught_up, what="the newest state")

    def gets_events() -> bool:
        slow.send({"ack": slow.cursor})
        with writer() as one:
            number = log_event(one, job)
        time.sleep(0.2)  # spaces the writes; what is waited for is the event
        return number in {event["id"] for event in slow.events}

    wait_for(gets_events, what="events again")


def test_a_socket_that_pongs_and_never_acknowledges_is_closed_as_too_slow(quick, key: str):
    _, slow = overrun(quick[0], key)

    def closed() -> bool:
        if slow.close_code is None:
            slow.send({"pong": True})
        return slow.close_code is not None

    wait_for(closed, what="the close")
    assert slow.close_code == 4409


@dataclass(frozen=True)
class Crowd:
    """`flood`: events of one job, which the mute sockets watch, for each event of the others."""

    sockets: int
    mute: int
    kills: int
    flood: int


@pytest.mark.proves("R16")
@pytest.mark.parametrize(
    "crowd",
    [
        pytest.param(Crowd(sockets=40, mute=10, kills=3, flood=40), id="short"),
        pytest.param(Crowd(sockets=300, mute=30, kills=20, flood=40), id="long", marks=pytest.mark.soak),
    ],
)
def test_mute_sockets_and_killed_listeners_harm_nobody(crowd: Crowd, quick, key: str, figures):
    client, process = quick
    flooded, *jobs = [make_job() for _ in range(11)]
    healthy = [client.watch(f"jobs/{jobs[number % 10].pk}", key=key) for number in range(crowd.sockets - crowd.mute)]
    for watcher in healthy:
        watcher.first("snapshot", seconds=60)
    for _ in range(crowd.mute):
        client.watch(f"jobs/{flooded.pk}", key=key, reads=False)
    resident = psutil.Process(process.pid).memory_info().rss
    over = threading.Event()
    written: list[set[int]] = [set() for _ in jobs]

    def write() -> None:
        with writer() as one:
            while not over.wait(0.01):
                for number, job in enumerate(jobs):
                    written[number].add(log_event(one, job))
                for _ in range(crowd.flood):
                    log_event(one, flooded, HEAVY)
                one.commit()

    thread = threading.Thread(target=write)
    thread.start()
    peak = 0
    try:
        for _ in range(crowd.kills):
            healthy[0].wait_for_more(100)
            peak = max(peak, psutil.Process(process.pid).memory_info().rss)
            wait_for(terminate_relays, what="a relay to kill")
        assert process.runs
    finally:
        over.set()
        thread.join()
    for number, watcher in enumerate(healthy):
        watcher.wait_for_events(written[number % 10], seconds=60)
    grown = (peak - resident) / 2**20
    events = sum(map(len, written)) * (1 + crowd.flood / 10)
    figures(
        f"{crowd.sockets} sockets, {crowd.mute} of them mute, {crowd.kills} kills, {events:,.0f} events, 0 missed; "
        f"resident memory +{grown:.0f} MiB"
    )
    assert grown < 30, "what mute sockets do not read piles up"
    port = int(client.address.rsplit(":", 1)[1])

    def mute_are_gone() -> bool:
        connections = psutil.Process(process.pid).net_connections("tcp")
        return sum(one.laddr.port == port and one.status == "ESTABLISHED" for one in connections) <= len(healthy)

    wait_for(mute_are_gone, what="the close of those that never read")
    assert all(watcher.close_code is None for watcher in healthy)
