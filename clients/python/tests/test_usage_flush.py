"""Sending what the outbox holds: what is refused, what is lost on the way, and when it is tried again."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from queueops_client.errors import ApiError, Unreachable
from queueops_client.retry import Retry
from queueops_client.usage.flush import Pace
from stand_in import Reply, refusal
from usage_server import UsageServer
from usage_trackers import USER, Tracker, of_shared_code, wait_until

DAY = 86400.0


@pytest.fixture(autouse=True)
def allowance(server):
    allowance = UsageServer(quota=1_000_000)
    server.answer = allowance.answer
    return allowance


@pytest.fixture
def tracker(kind, server, tmp_path):
    made = Tracker(kind, server.url, tmp_path / "outbox.sqlite3", policy="optimistic")
    yield made
    made.close(timeout=1)


def ingested(server):
    return [len(asked.json) for asked in server.asked if asked.path.endswith("/ingest/")]


@of_shared_code
def test_a_rejected_event_is_set_apart_with_its_reason_and_the_others_are_sent(tracker, server, allowance):
    uses = [tracker.use(5, tokens=5) for _ in range(3)]
    bad = uses[1].event_id

    def answer(asked):
        reply = allowance.answer(asked)
        if asked.path.endswith("/ingest/") and reply.body["results"][1]["event_id"] == bad:
            allowance.events.pop(bad, None)
            reply.body["results"][1] = {
                "event_id": bad,
                "status": "rejected",
                "reason": "foreign_user",
                "message": "It is another user's.",
            }
        return reply

    server.answer = answer
    assert (tracker.flush().sent, tracker.report().pending) == (2, 0)
    [row] = tracker.report().rejected
    assert (row.event_id, row.reason, row.tokens, row.attempts) == (bad, "foreign_user", 5, 1)
    server.answer = allowance.answer
    assert tracker.retry_rejected() == 1
    assert tracker.flush().sent == 1
    assert allowance.used(USER) == 15


@of_shared_code
def test_a_batch_refused_as_a_whole_is_halved_until_only_the_bad_row_is_set_apart(tracker, server, allowance):
    uses = [tracker.use(5, tokens=5) for _ in range(20)]
    bad = uses[13].event_id

    def answer(asked):
        if asked.path.endswith("/ingest/") and bad in asked.body.decode():
            return refusal(422, "invalid_input")
        return allowance.answer(asked)

    server.answer = answer
    done = tracker.flush()
    assert (done.sent, done.rejected) == (19, 1)
    assert [(row.event_id, row.reason) for row in tracker.report().rejected] == [(bad, "invalid_input")]
    assert sorted(allowance.received) == sorted(use.event_id for use in uses if use.event_id != bad)


@of_shared_code
def test_a_server_that_refuses_everything_sets_no_row_apart(tracker, server, allowance):
    for status in (400, 413, 422):
        for _ in range(4):
            tracker.use(5, tokens=5)
        server.answer = lambda _, status=status: refusal(status, "no")
        with pytest.raises(ApiError):
            tracker.flush()
        report = tracker.report()
        assert (report.pending, report.rejected) == (4, ()), status
        assert report.paused, status
        server.answer = allowance.answer
        assert tracker.flush().sent == 4, status


@of_shared_code
def test_a_refusal_of_the_sender_pauses_in_sight_and_keeps_every_row(tracker, server, allowance, caplog):
    for number, status in enumerate((401, 403, 404, 405), 1):
        tracker.use(5, tokens=5)
        server.will_refuse(status, "expired_token")
        caplog.clear()
        with pytest.raises(ApiError):
            tracker.flush()
        report = tracker.report()
        assert "expired_token" in report.paused, status
        assert (report.pending, report.rejected) == (1, ()), status
        assert "is not sent, and is kept" in caplog.text, status
        tracker.flush()
        assert tracker.report().paused is None, status
        assert allowance.used(USER) == 5 * number, status


def test_an_event_whose_answer_was_lost_is_sent_again_and_counted_once(tracker, server, allowance):
    usage = tracker.use(5, tokens=5)

    def lose(asked):
        reply = allowance.answer(asked)
        reply.cut = True
        return reply

    server.answer = lose
    with pytest.raises(Unreachable):
        tracker.flush()
    server.answer = allowance.answer
    assert tracker.flush().sent == 1
    assert allowance.received == [usage.event_id] * 2
    assert allowance.used(USER) == 5


@of_shared_code
def test_an_answer_that_is_not_of_the_server_sends_no_row_off(tracker, server, allowance):
    tracker.use(5, tokens=5)
    another = {"event_id": USER, "status": "accepted"}
    bodies: tuple[Any, ...] = (b"<html>Welcome to the hotel</html>", {}, {"results": []}, {"results": [another]})
    for body in bodies:
        server.answers = [Reply(200, body)]
        with pytest.raises(ApiError):
            tracker.flush()
        assert tracker.report().pending == 1, body
    tracker.flush()
    assert allowance.used(USER) == 5


def test_thousands_of_rows_go_in_full_batches_over_one_connection(tracker, server, allowance):
    outbox = tracker.inner._desk.outbox
    for _ in range(25):
        uses = [tracker.inner._desk.usage(estimate=1, service="", user_id=None).intent for _ in range(100)]
        with outbox._file.transaction() as db:
            for use in uses:
                outbox._insert(db, use, "ready", cost=1, month="", tokens=1)
    assert tracker.flush().sent == 2500
    assert ingested(server) == [1000, 1000, 500]
    assert len({asked.connection for asked in server.asked}) == 1
    assert allowance.used(USER) == 2500


@of_shared_code
def test_a_local_clock_that_is_wrong_by_hours_loses_no_event(kind, server, allowance, tmp_path):
    for number, hours in enumerate((-40 * 24, -5, 3, 400), 1):
        path = tmp_path / f"{number}.sqlite3"
        clock = lambda hours=hours: time.time() + hours * 3600  # noqa: E731
        off = Tracker(kind, server.url, path, policy="optimistic", clock=clock)
        off.use(5, tokens=5)  # no answer was heard yet
        assert off.flush().sent == 1, hours
        off.use(5, tokens=5)
        off.flush()
        off.close()
        # All months count: the second clock may still show the month before.
        assert sum(one["amount"] for one in allowance.events.values()) == 10 * number, hours


@of_shared_code
def test_a_clock_set_right_while_an_event_waits_does_not_put_it_into_the_future(kind, server, allowance, tmp_path):
    ahead = [7200.0]
    tracker = Tracker(
        kind,
        server.url,
        tmp_path / "outbox.sqlite3",
        policy="optimistic",
        clock=lambda: time.time() + ahead[0],
    )
    tracker.use(5, tokens=5)
    ahead[0] = 0.0
    tracker.flush()
    tracker.close()
    assert allowance.used(USER) == 5


@of_shared_code
def test_an_event_that_is_too_old_is_set_apart_and_one_that_nears_it_is_reported(kind, server, allowance, tmp_path):
    now = [time.time() - 40 * DAY]
    tracker = Tracker(kind, server.url, tmp_path / "outbox.sqlite3", policy="optimistic", clock=lambda: now[0])
    tracker.inner._desk.clock.offset = 0.0  # it was right, and is
    tracker.use(5, tokens=5)
    now[0] += 10 * DAY
    tracker.use(6, tokens=6)
    now[0] += 30 * DAY
    report = tracker.report()
    assert report.near_age_limit == 2
    assert report.oldest_age_seconds == pytest.approx(40 * DAY, abs=5)
    done = tracker.flush()
    assert (done.sent, done.rejected) == (1, 1)
    [row] = tracker.report().rejected
    assert (row.tokens, row.reason) == (5, "too_old")
    assert tracker.resolve(row.event_id, tokens=None)
    assert tracker.report().size == 0
    tracker.close()


def test_in_the_background_what_failed_is_tried_again_until_it_is_through(kind, server, allowance, tmp_path):
    server.will_refuse(503, "unavailable", times=2, retry_after="0")
    tracker = Tracker(
        kind, server.url, tmp_path / "outbox.sqlite3", policy="optimistic", background=True, gather_seconds=0
    )
    tracker.inner._desk.flusher.pace.retry = Retry(base_seconds=0.01, cap_seconds=0.05)
    tracker.use(5, tokens=5)
    wait_until(lambda: allowance.used(USER) == 5)
    wait_until(lambda: tracker.report().last_error is None)
    assert ingested(server) == [1, 1, 1]
    tracker.close()


@given(failures=st.integers(1, 80), drawn=st.floats(0, 1), retry_after=st.none() | st.floats(0, 1000))
def test_the_pause_is_within_the_truncated_doubling_and_never_below_retry_after(failures, drawn, retry_after):
    pace = Pace(Retry(base_seconds=1.0, cap_seconds=60.0, draw=lambda: drawn))
    error = ApiError("unavailable", "It is away.", status=503, retry_after=retry_after)
    for _ in range(failures):
        pause = pace.failed(error)
    least = retry_after or 0.0
    assert least <= pause <= least + min(60.0, 2.0 ** (failures - 1))
    assert pause == least + drawn * min(60.0, 2.0 ** (failures - 1))
    assert pace.paused is None, "a server that is away is no reason for a person to act"
    pace.succeeded()
    assert pace.failed(error) <= least + 1.0
