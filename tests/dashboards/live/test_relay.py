"""Nothing is lost between a commit and a socket."""

from __future__ import annotations

import json
import threading
import urllib.request

import pytest
from django.db import connection

from dashboards.live.relay import LOOK_BACK
from jobs.models import Epoch, Job, PauseSwitch
from jobs.services.operate.epochs import PUT_BACK_REASON, declare_restored
from tests.dashboards.live.conftest import web_process
from tests.factories import make_batch, make_job
from tests.support.event_log import log_event, terminate_relays, writer
from tests.support.live import LiveClient, Watcher, live_client
from tests.support.processes import wait_for

pytestmark = pytest.mark.django_db(transaction=True)


def watched(client: LiveClient, key: str) -> tuple[Job, Watcher]:
    job = make_job()
    watcher = client.watch(f"jobs/{job.pk}", key=key)
    watcher.first("snapshot")
    return job, watcher


def pulled_cursor(client: LiveClient, job: Job, key: str) -> int:
    headers = {"Authorization": f"Bearer {key}"}
    request = urllib.request.Request(f"{client.address}/api/v1/jobs/{job.pk}/", headers=headers)  # noqa: S310 - our own
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        return int(json.load(answer)["cursor"])


def log_and_see(job: Job, watcher: Watcher, count: int) -> set[int]:
    """Commit so many events, one after the other, each seen before the next is written."""
    ids = set()
    for _ in range(count):
        with writer() as one:
            ids.add(log_event(one, job))
        watcher.wait_for_events(ids)
    return ids


def test_an_event_that_commits_after_younger_ones_is_not_missed(client: LiveClient, key: str):
    job, watcher = watched(client, key)
    with writer() as slow:
        late = log_event(slow, job)
        early = log_and_see(job, watcher, 20)
        assert late < min(early)
        assert late not in {event["id"] for event in watcher.events}
        assert watcher.cursor < late, "who comes back with this cursor would never get the late event"
        cursor = watcher.cursor
        slow.commit()
    watcher.wait_for_events({late})
    back = client.watch(f"jobs/{job.pk}", key=key)
    back.first("snapshot")
    back.resume(cursor)
    back.wait_for_events({late} | early)
    log_and_see(job, watcher, 1)
    wait_for(lambda: log_and_see(job, watcher, 1) and watcher.cursor > late, what="a cursor beyond the late event")
    ids = [event["id"] for event in watcher.events]
    assert len(ids) == len(set(ids)), "an event came twice"


def test_the_cursor_of_a_pull_stays_below_what_may_still_come(client: LiveClient, key: str):
    job = make_job()
    settled = wait_for(lambda: pulled_cursor(client, job, key), what="a first cursor")
    with writer() as slow:
        late = log_event(slow, job)
        for _ in range(20):
            with writer() as one:
                early = log_event(one, job)
            assert settled <= pulled_cursor(client, job, key) < late < early
        slow.commit()
    wait_for(lambda: pulled_cursor(client, job, key) >= early, what="a cursor beyond the late event")


def test_no_event_falls_between_the_snapshot_and_the_stream(client: LiveClient, key: str):
    job = make_job()
    over = threading.Event()
    ids: set[int] = set()

    def write() -> None:
        with writer() as one:
            while not over.wait(0.01):
                number = log_event(one, job)
                one.commit()
                ids.add(number)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        watchers = [client.watch(f"jobs/{job.pk}", key=key) for _ in range(15)]
        cursors = [watcher.first("snapshot")["cursor"] for watcher in watchers]
    finally:
        over.set()
        thread.join()
    for watcher, cursor in zip(watchers, cursors, strict=True):
        watcher.wait_for_events({number for number in ids if number > cursor})


def test_a_cursor_that_a_new_process_gives_while_an_old_transaction_lasts_can_be_resumed_from(key: str):
    batch = make_batch()
    job = make_job(batch=batch)
    with writer() as slow:
        log_event(slow, job)  # a dump or a report does as much
        with writer() as one:
            one.execute("SELECT setval('jobs_jobevent_id', nextval('jobs_jobevent_id') + %s)", [2 * LOOK_BACK])
            log_event(one, job)
        with web_process() as (address, _), live_client(address) as client:
            there = client.watch(f"batches/{batch.pk}", key=key)
            cursor = there.first("snapshot")["cursor"]
            missed = log_and_see(job, there, 3)
            back = client.watch(f"batches/{batch.pk}", key=key)
            back.first("snapshot")
            back.resume(cursor)
            back.wait_for_events(missed)


def test_a_transaction_that_rolls_back_holds_up_nothing(client: LiveClient, key: str):
    job, watcher = watched(client, key)
    with writer() as one:
        lost = log_event(one, job)
        one.rollback()
    log_and_see(job, watcher, 3)
    wait_for(lambda: log_and_see(job, watcher, 1) and watcher.cursor > lost, what="a cursor beyond the lost id")


def test_a_transaction_has_its_id_before_it_takes_an_events():
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT column_default FROM information_schema.columns"
            " WHERE table_name = 'jobs_jobevent' AND column_name = 'id'"
        )
        [default] = cursor.fetchone() or ("",)
    assert 0 < default.index("pg_current_xact_id") < default.index("nextval")


@pytest.mark.proves("R16")
@pytest.mark.parametrize("kills", [pytest.param(4, id="short"), pytest.param(20, id="long", marks=pytest.mark.soak)])
def test_no_event_is_lost_while_the_listener_is_killed_again_and_again(kills: int, client: LiveClient, key: str):
    job, watcher = watched(client, key)
    over = threading.Event()
    ids: set[int] = set()
    url_of_writer = writer()

    def write() -> None:
        with url_of_writer as one:
            while not over.wait(0.005):
                ids.add(log_event(one, job))
                one.commit()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for _ in range(kills):
            watcher.wait_for_more(20)
            wait_for(terminate_relays, what="a relay to kill")
    finally:
        over.set()
        thread.join()
    watcher.wait_for_events(set(ids))


def test_a_log_that_was_put_back_to_an_earlier_moment_is_followed_from_there(client: LiveClient, key: str):
    job, watcher = watched(client, key)
    before = log_and_see(job, watcher, 20)
    wait_for(lambda: pulled_cursor(client, job, key) >= max(before), what="a cursor after all of them")
    seen = len(watcher.messages)
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE jobs_jobevent; SELECT setval('jobs_jobevent_id', %s)", [min(before)])
    wait_for(terminate_relays, what="a relay whose connection the server's return ends")
    wait_for(lambda: len(watcher.of_type("snapshot")) > 1, what="a snapshot of the earlier moment")
    [anew] = [message for message in watcher.messages[seen:] if message["type"] == "snapshot"]
    assert anew["epoch"] == str(Epoch.objects.get()) != watcher.messages[0]["epoch"]
    assert PauseSwitch.objects.get(scope="global").reason == PUT_BACK_REASON
    after = log_and_see(job, watcher, 5)
    assert after < before | {max(after)}, "they have ids that were given before"
    assert pulled_cursor(client, job, key) <= max(after)


def test_a_log_that_was_put_back_and_has_come_as_far_again_is_told_by_another_event_of_the_newest_id(
    client: LiveClient, key: str
):
    job, watcher = watched(client, key)
    before = log_and_see(job, watcher, 5)
    wait_for(lambda: pulled_cursor(client, job, key) >= max(before), what="a cursor after all of them")
    with connection.cursor() as cursor:
        cursor.execute(
            "CREATE TEMPORARY TABLE other AS SELECT * FROM jobs_jobevent;"
            "UPDATE other SET created_at = created_at + interval '1 microsecond';"
            "TRUNCATE jobs_jobevent; INSERT INTO jobs_jobevent SELECT * FROM other; DROP TABLE other"
        )
    wait_for(terminate_relays, what="a relay whose connection the server's return ends")
    wait_for(lambda: len(watcher.of_type("snapshot")) > 1, what="a snapshot of what is there")
    assert watcher.of_type("snapshot")[-1]["epoch"] == str(Epoch.objects.get()) != watcher.messages[0]["epoch"]
    assert PauseSwitch.objects.get(scope="global").reason == PUT_BACK_REASON


def test_a_new_epoch_that_somebody_begins_is_told_to_every_socket(client: LiveClient, key: str):
    job, watcher = watched(client, key)
    log_and_see(job, watcher, 3)
    epoch = declare_restored(actor="op").epoch
    wait_for(lambda: watcher.of_type("snapshot")[-1]["epoch"] == epoch, what="a snapshot of the new epoch")
    log_and_see(job, watcher, 3)
    assert {message["epoch"] for message in watcher.messages[-3:]} == {epoch}


@pytest.mark.parametrize("given", [{}, {"epoch": "of-another-life"}, {"epoch": None}, {"epoch": 7}, {"epoch": ["x"]}])
def test_a_cursor_of_another_epoch_or_of_none_is_answered_by_a_snapshot(client: LiveClient, key: str, given):
    job, watcher = watched(client, key)
    ids = log_and_see(job, watcher, 3)
    back = client.watch(f"jobs/{job.pk}", key=key)
    first = back.first("snapshot")
    back.send({"resume": min(ids) - 1, **given})
    wait_for(lambda: len(back.of_type("snapshot")) > 1, what="a fresh snapshot")
    # A process that is behind sends what the first snapshot lacks, whatever is resumed.
    assert all(event["id"] > first["cursor"] for event in back.events)
    assert back.close_code is None


def test_every_process_on_one_database_follows_the_log_by_itself(client: LiveClient, key: str):
    with web_process() as (other, _):
        job, here = watched(client, key)
        there = client.watch(f"jobs/{job.pk}", key=key, address=other)
        there.first("snapshot")
        ids = log_and_see(job, here, 5)
        there.wait_for_events(ids)
        moved = client.watch(f"jobs/{job.pk}", key=key, address=other)
        moved.first("snapshot")
        moved.resume(0)
        moved.wait_for_events(ids)


def test_without_listen_polling_is_enough(key: str, transactional_db: None):
    with web_process(QUEUEOPS_LISTEN="off") as (address, _), live_client(address) as client:
        job, watcher = watched(client, key)
        log_and_see(job, watcher, 3)


def test_more_events_than_one_read_takes_come_all(client: LiveClient, key: str):
    batch = make_batch()
    job = make_job(batch=batch)
    other = make_job()
    watcher = client.watch(f"jobs/{job.pk}", key=key)
    watcher.first("snapshot")
    with writer() as one:
        ids = {log_event(one, job if number % 50 == 0 else other) for number in range(5_000)}
    watcher.wait_for_events(set(sorted(ids)[::50]))
