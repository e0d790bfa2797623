"""A use from its begin to the server's count, with either tracker."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from uuid import NAMESPACE_URL, UUID, uuid5

import pytest

from queueops_client import (
    AsyncUsageTracker,
    QuotaExceeded,
    QuotaUnavailable,
    TokensNotSet,
    TrackerClosed,
    UsageTracker,
)
from queueops_client.errors import BadConfiguration, NotAuthenticated
from queueops_client.usage.identity import user_of
from stand_in import Reply
from usage_server import UsageServer
from usage_trackers import OTHER_USER, USER, Tracker, of_shared_code, wait_until

NOBODY = "http://127.0.0.1:9"  # nothing listens there


@pytest.fixture(autouse=True)
def allowance(server):
    allowance = UsageServer()
    server.answer = allowance.answer
    return allowance


@pytest.fixture
def policy():
    return "hybrid"


@pytest.fixture
def tracker(kind, policy, server, tmp_path):
    made = Tracker(kind, server.url, tmp_path / "outbox.sqlite3", policy=policy)
    yield made
    made.close()


def paths(server):
    return [asked.path.removeprefix("/api/v1/usage/").strip("/") for asked in server.asked]


def jwt(**claims):
    part = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
    return f"e30.{part}.signature"


def test_what_a_use_took_is_counted_by_the_server_once(tracker, allowance):
    usage = tracker.use(80, tokens=30, service="gemini")
    assert tracker.flush().sent == 1
    assert tracker.flush().sent == 0
    [event] = allowance.events.values()
    assert (event["event_id"], event["tokens"], event["service"]) == (usage.event_id, 30, "gemini")
    assert abs(time.time() - datetime.fromisoformat(event["ts"]).timestamp()) < 5


@of_shared_code
def test_with_plenty_left_only_the_first_use_of_a_month_asks(tracker, server):
    for _ in range(3):
        tracker.use(20, tokens=10)
    assert paths(server) == ["me"]
    assert tracker.known().remaining == 1000 - 3 * 10


def test_every_use_lowers_what_is_known_by_its_estimate_and_then_by_what_it_took(tracker):
    seen = []
    tracker.use(80, tokens=30, during=lambda _: seen.append(tracker.inner._desk.outbox.view(USER).remaining))
    assert seen == [920]
    assert tracker.known().remaining == 970


@of_shared_code
def test_near_the_limit_hybrid_reserves_and_the_event_names_the_reservation(tracker, server, allowance):
    allowance.quota = 100  # the threshold is a tenth
    tracker.use(85, tokens=85)
    tracker.flush()
    reserved = tracker.use(10, tokens=8)
    assert paths(server) == ["me", "reserve", "ingest", "reserve"]
    assert allowance.reserved(USER) == 10
    tracker.flush()
    assert allowance.events[reserved.event_id]["reservation_id"] == reserved.reservation_id
    assert (allowance.used(USER), allowance.reserved(USER)) == (93, 0)


@of_shared_code
@pytest.mark.parametrize("policy", ["strict"])
def test_strict_reserves_every_use(tracker, server):
    tracker.use(80, tokens=30)
    tracker.use(80, tokens=30)
    assert paths(server) == ["me", "reserve", "reserve"]


@of_shared_code
@pytest.mark.parametrize("policy", ["strict"])
def test_strict_refuses_what_the_allowance_has_no_room_for_and_says_when_it_resets(tracker, allowance):
    with pytest.raises(QuotaExceeded) as refused:
        tracker.use(1001, tokens=1)
    assert refused.value.remaining == 1000
    assert refused.value.resets_at == allowance.resets_at()
    assert tracker.report().size == 0


@of_shared_code
@pytest.mark.parametrize("policy", ["strict"])
def test_before_refusing_strict_settles_what_it_holds_back_itself(tracker, allowance):
    tracker.use(600, tokens=10)
    tracker.use(900, tokens=5)  # fits as soon as the server has heard of the first
    tracker.flush()
    assert allowance.used(USER) == 15


@pytest.mark.parametrize("policy", ["strict"])
def test_a_failed_call_gives_its_reservation_back_before_the_next_is_refused(tracker, allowance):
    with pytest.raises(ZeroDivisionError):
        tracker.use(600, error=ZeroDivisionError())
    tracker.use(600, tokens=1)
    tracker.flush()
    assert (allowance.used(USER), allowance.reserved(USER)) == (1, 0)


@of_shared_code
@pytest.mark.parametrize("policy", ["optimistic"])
def test_optimistic_neither_asks_nor_is_refused(tracker, server, allowance):
    for _ in range(3):
        tracker.use(900, tokens=900)
    assert paths(server) == []
    tracker.flush()
    assert allowance.used(USER) == 2700


@of_shared_code
@pytest.mark.parametrize("policy", ["strict", "hybrid"])
def test_without_a_server_what_must_be_asked_for_is_refused_in_words(kind, policy, tmp_path):
    tracker = Tracker(kind, NOBODY, tmp_path / "outbox.sqlite3", policy=policy)
    with pytest.raises(QuotaUnavailable, match="does not answer"):
        tracker.use(10, tokens=1)
    assert tracker.report().size == 0
    tracker.close()


@of_shared_code
def test_offline_hybrid_goes_on_until_its_credit_is_used(kind, server, allowance, tmp_path):
    path = tmp_path / "outbox.sqlite3"
    online = Tracker(kind, server.url, path)
    online.standing()
    online.close()
    offline = Tracker(kind, NOBODY, path)
    for _ in range(10):
        offline.use(10, tokens=10)
    with pytest.raises(QuotaUnavailable):
        offline.use(10, tokens=10)
    offline.close(timeout=0.2)
    again = Tracker(kind, server.url, path)
    assert again.flush().sent == 10
    again.close()
    assert allowance.used(USER) == 100


@of_shared_code
def test_where_overuse_is_recorded_neither_the_limit_nor_silence_stops_a_use(kind, server, allowance, tmp_path):
    allowance.quota, allowance.policy = 100, "record_overage"
    path = tmp_path / "outbox.sqlite3"
    online = Tracker(kind, server.url, path)
    online.use(300, tokens=300)
    online.use(300, tokens=300)
    online.close()
    offline = Tracker(kind, NOBODY, path)
    offline.use(300, tokens=300)
    offline.close(timeout=0.2)
    again = Tracker(kind, server.url, path)
    again.flush()
    again.close()
    assert allowance.used(USER) == 900


def test_an_exception_counts_nothing_unless_tokens_were_set_before(tracker, allowance):
    with pytest.raises(ZeroDivisionError):
        tracker.use(80, error=ZeroDivisionError())
    assert tracker.report().size == 0
    with pytest.raises(ZeroDivisionError):
        tracker.use(80, tokens=33, error=ZeroDivisionError())
    tracker.flush()
    assert allowance.used(USER) == 33


def test_forgotten_tokens_count_as_the_estimate_with_a_warning(tracker, allowance):
    with pytest.warns(TokensNotSet, match="80") as warned:
        tracker.use(80)
    assert warned[0].filename.endswith("usage_trackers.py"), "the warning is shown at the with statement"
    tracker.flush()
    assert allowance.used(USER) == 80


@of_shared_code
def test_an_allowance_in_requests_needs_neither_estimate_nor_tokens(kind, allowance, server, tmp_path):
    allowance.unit, allowance.quota = "requests", 2
    tracker = Tracker(kind, server.url, tmp_path / "outbox.sqlite3", threshold=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tracker.use()
    tracker.use(tokens=500)
    with pytest.raises(QuotaExceeded):
        tracker.use()
    tracker.close()
    assert [event["tokens"] for event in allowance.events.values()] == [0, 500]
    assert allowance.used(USER) == 2


@of_shared_code
def test_an_allowance_in_tokens_needs_an_estimate(tracker):
    with pytest.raises(BadConfiguration, match="estimate"):
        tracker.use(tokens=1)
    assert tracker.report().size == 0


@of_shared_code
def test_tokens_that_the_server_would_refuse_are_refused_where_they_are_set(tracker):
    for value in (-1, 1.5, True, "8", 10**10):
        with pytest.raises(ValueError, match="tokens"):
            tracker.use(80, tokens=value)


def test_a_key_counts_for_many_users_and_a_token_for_its_own(kind, server, allowance, tmp_path):
    tracker = Tracker(kind, server.url, tmp_path / "key.sqlite3", user_id=None)
    tracker.use(5, tokens=5, user_id=OTHER_USER)
    with pytest.raises(BadConfiguration, match="name one"):
        tracker.use(5, tokens=5)
    tracker.close()
    assert allowance.used(OTHER_USER) == 5
    allowance.only_user = USER
    own = Tracker(kind, server.url, tmp_path / "own.sqlite3", user_id=None, token=jwt(sub=USER))
    if kind == "sync":
        own.use(7, tokens=7)
    with pytest.raises(BadConfiguration, match="cannot act"):
        own.use(5, tokens=5, user_id=OTHER_USER)
    own.close()
    assert [asked.query for asked in server.asked if asked.path.endswith("/me/")][1:] in ([], [{}])


@of_shared_code
def test_a_user_s_token_sends_no_rows_of_another(kind, server, allowance, tmp_path):
    path = tmp_path / "outbox.sqlite3"
    for user_id in (USER, OTHER_USER):
        tracker = Tracker(kind, NOBODY, path, user_id=user_id, policy="optimistic")
        tracker.use(5, tokens=5)
        tracker.close(timeout=0.2)
    allowance.only_user = USER
    own = Tracker(kind, server.url, path, token=jwt(sub=USER), user_id=USER)
    assert own.flush().sent == 1
    assert own.report().pending == 1
    own.close()
    assert allowance.used(OTHER_USER) == 0


def test_a_subject_that_is_no_uuid_is_mapped_as_the_server_does():
    assert user_of(jwt(sub=USER)) == USER
    assert user_of(jwt(sub="auth0|7", iss="https://id.example")) == str(
        uuid5(NAMESPACE_URL, "https://id.example auth0|7")
    )
    with pytest.raises(BadConfiguration, match="user_id"):
        user_of("no.jwt.here")


def test_the_event_s_id_is_known_before_the_call(tracker, allowance):
    ids = []
    usage = tracker.use(80, tokens=3, during=lambda usage: ids.append(usage.event_id))
    tracker.flush()
    assert ids == [usage.event_id] == list(allowance.events)
    assert UUID(ids[0]).version == 4


def test_a_call_that_outlives_its_reservation_still_counts(kind, server, allowance, tmp_path):
    later = [0.0]
    allowance.now = lambda: time.time() + later[0]
    tracker = Tracker(kind, server.url, tmp_path / "outbox.sqlite3", policy="strict")

    def outlive(_):
        later[0] += allowance.reservation_seconds + 1
        assert allowance.reserved(USER) == 0

    usage = tracker.use(80, tokens=70, during=outlive)
    tracker.flush()
    assert allowance.reservations[usage.reservation_id].status == "expired"
    later[0] = 0.0  # five minutes later may be another month
    assert allowance.used(USER) == 70
    tracker.close()


def test_a_revoked_token_is_named_to_the_caller_of_what_must_be_asked_for(tracker, server):
    server.will_refuse(401, "invalid_key")
    with pytest.raises(NotAuthenticated):
        tracker.use(80, tokens=1)


def test_a_background_sends_without_being_asked_and_gathers_what_comes_together(kind, server, allowance, tmp_path):
    began = time.monotonic()
    tracker = Tracker(kind, server.url, tmp_path / "outbox.sqlite3", background=True, gather_seconds=0.3)
    for _ in range(50):
        tracker.use(1, tokens=1)
    wait_until(lambda: allowance.used(USER) == 50)
    assert paths(server).count("ingest") <= 1 + (time.monotonic() - began) / 0.3
    tracker.close()


def test_closing_sends_what_is_left_and_can_be_repeated(tracker, allowance):
    tracker.use(80, tokens=30)
    tracker.inner.use(5)  # never begun
    tracker.close()
    assert allowance.used(USER) == 30
    if not tracker.is_async:
        tracker.close()
        with pytest.raises(TrackerClosed):
            tracker.use(1, tokens=1)


def test_closing_is_bounded_when_the_server_hangs_and_loses_nothing(kind, server, allowance, tmp_path):
    path = tmp_path / "outbox.sqlite3"
    tracker = Tracker(kind, server.url, path, policy="optimistic", background=True, gather_seconds=0)
    released: list[bool] = []

    def hang(_):
        wait_until(lambda: released)
        return allowance.answer(_)

    server.answer = hang
    tracker.use(5, tokens=5)
    began = time.monotonic()
    tracker.close(timeout=0.5)
    assert time.monotonic() - began < 15, "it waited for the server, which would have hung for 20 s"
    released.append(True)
    server.answer = allowance.answer
    again = Tracker(kind, server.url, path)
    again.flush(timeout=10)
    again.close()
    assert allowance.used(USER) == 5


def test_the_use_of_many_threads_or_tasks_adds_up(kind, server, allowance, tmp_path):
    allowance.quota = 10_000
    path = tmp_path / "outbox.sqlite3"
    if kind == "sync":
        with UsageTracker(server.url, "qo_key", user_id=USER, path=path, gather_seconds=0.05) as tracker:

            def work(_):
                for _ in range(20):
                    with tracker.use(3) as usage:
                        usage.tokens = 2

            with ThreadPoolExecutor(8) as threads:
                list(threads.map(work, range(8)))
    else:

        async def main():
            async with AsyncUsageTracker(server.url, "qo_key", user_id=USER, path=path, gather_seconds=0.05) as tracker:

                async def work():
                    for _ in range(20):
                        async with tracker.use(3) as usage:
                            await asyncio.sleep(0)
                            usage.tokens = 2

                await asyncio.gather(*(work() for _ in range(8)))

        asyncio.run(main())
    assert allowance.used(USER) == 8 * 20 * 2
    assert len(allowance.events) == 160
    assert len(allowance.received) == 160, "no row was sent twice"


def test_what_is_on_its_way_while_the_tracker_closes_is_sent_once(kind, server, allowance, tmp_path):
    arrived, may_answer = threading.Event(), threading.Event()

    def answer(asked):
        reply = allowance.answer(asked)
        if asked.path.endswith("/ingest/"):
            arrived.set()
            assert may_answer.wait(20)
        return reply

    server.answer = answer
    path = tmp_path / "outbox.sqlite3"
    tracker = Tracker(kind, server.url, path, policy="optimistic", background=True, gather_seconds=0.01)
    tracker.use(tokens=2)
    assert arrived.wait(20)
    closing = threading.Thread(target=tracker.close, kwargs={"timeout": 20})
    closing.start()
    wait_until(lambda: tracker.inner._closed)
    time.sleep(0.1)  # for what else would send to do so
    may_answer.set()
    closing.join(10)
    assert not closing.is_alive(), "it waited for more than what was on its way"
    assert len(allowance.received) == 1


def test_a_server_that_does_not_answer_holds_up_no_close_and_what_was_on_its_way_is_kept(
    kind, server, allowance, tmp_path
):
    arrived, may_answer = threading.Event(), threading.Event()

    def answer(asked):
        if asked.path.endswith("/ingest/") and not may_answer.is_set():
            arrived.set()
            assert may_answer.wait(20)
            return Reply(status=503, body={})  # too late for whoever asked
        return allowance.answer(asked)

    server.answer = answer
    path = tmp_path / "outbox.sqlite3"
    tracker = Tracker(kind, server.url, path, policy="optimistic", background=True, gather_seconds=0.01)
    tracker.use(tokens=2)
    assert arrived.wait(20)
    began = time.monotonic()
    tracker.close(timeout=0.3)
    assert time.monotonic() - began < 10
    if kind == "async":
        assert tracker.inner._task.done()
    may_answer.set()
    again = Tracker(kind, server.url, path)
    assert again.flush(timeout=10).pending == 0
    again.close()
    assert allowance.used(USER) == 2
