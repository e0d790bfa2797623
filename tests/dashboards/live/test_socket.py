"""What one socket is sent, and what it is spared."""

from __future__ import annotations

import json
import time
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from dashboards.live import socket
from dashboards.live.events import Event, EventFilter
from dashboards.live.messages import CloseCode, Kind
from dashboards.live.socket import MAX_STATES, MESSAGE_WINDOW, LiveSocket
from dashboards.live.subjects import LiveSubject
from dashboards.live.viewer import Viewer
from jobs.models import JobEvent
from jobs.services.explain.event_log import Cursor
from queueops.core.values.rate import Rate
from tests.support.cases import every_case

LINK = Path(socket.__file__).parent.parent / "static/dashboards/live/link.js"
EPOCH = "8c1f0e5b7a924d36"
OPERATOR = Viewer(True, None, None, "operator", "user:1")


def event(number: int, **fields: Any) -> Event:
    given = {
        "job": "j",
        "project": "acme",
        "user": None,
        "batch": None,
        "event_type": "audit",
        "from_status": None,
        "to_status": None,
        "message": "",
        "percent": None,
        "at": datetime(2026, 3, 2, tzinfo=UTC),
        "service": None,
        "data": '{"secret": 1}',
        **fields,
    }
    return Event(id=number, **given)


def at(number: int, epoch: str = EPOCH) -> Cursor:
    return Cursor(number, epoch)


def a_socket(*, events_per_second: int | None = None, is_masked: bool = False) -> LiveSocket:
    subject = LiveSubject(
        key=("job", "j"),
        group=("job", "j"),
        load=lambda _: None,
        log=JobEvent.objects.none(),
        reading=nullcontext,
        events_per_second=events_per_second,
        is_masked=is_masked,
    )
    return LiveSocket(OPERATOR, subject)


def opened(**options: Any) -> LiveSocket:
    one = a_socket(**options)
    one.release(Kind.SNAPSHOT, at(10), "{}")
    taken(one)
    return one


def taken(one: LiveSocket) -> list[dict[str, Any]]:
    return [json.loads(text) for text in one.take()]


def ids(messages: list[dict[str, Any]]) -> list[int]:
    return [message["event"]["id"] for message in messages if message["type"] == "event"]


def test_what_comes_while_the_snapshot_is_read_follows_it():
    one = a_socket()
    one.offer(event(11), at(10))
    one.offer(event(12), at(10))
    assert taken(one) == []
    one.release(Kind.SNAPSHOT, at(10), "{}")
    messages = taken(one)
    assert messages[0]["type"] == "snapshot"
    assert ids(messages) == [11, 12]


def test_what_was_there_before_the_socket_follows_the_snapshot_once():
    one = a_socket()
    one.offer(event(12), at(10))
    one.offer(event(13), at(10))
    one.release(Kind.SNAPSHOT, at(10), "{}", missed=[event(11), event(12)])
    assert ids(taken(one)) == [11, 12, 13]


def test_a_resume_sends_nothing_twice_and_its_cursor_last():
    one = opened()
    one.hold()
    one.offer(event(21), at(20))
    one.offer(event(22), at(20))
    one.replay([event(15), event(21)], since=14, cursor=at(20))
    messages = taken(one)
    assert ids(messages) == [15, 21, 22]
    assert [message["cursor"] for message in messages] == [14, 20, 20]


def test_a_resume_sends_what_the_filter_lets_through_and_the_cursor_passes_the_rest():
    one = opened()
    one.filter = EventFilter(project="acme")
    one.hold()
    one.replay(
        [event(15), event(16, project="globex"), event(17), event(18, project="globex")], since=14, cursor=at(20)
    )
    messages = taken(one)
    assert ids(messages) == [15, 17]
    assert [message["cursor"] for message in messages] == [14, 20]
    one.hold()
    one.replay([event(21, project="globex")], since=20, cursor=at(21))
    one.show(at(21), "{}")
    assert [(message["type"], message["cursor"]) for message in taken(one)] == [("stats", 21)]


def test_a_snapshot_is_followed_by_what_the_filter_lets_through():
    one = a_socket()
    one.filter = EventFilter(project="acme")
    one.release(Kind.SNAPSHOT, at(10), "{}", missed=[event(11), event(12, project="globex")])
    assert ids(taken(one)) == [11]


def test_the_page_tells_its_filter_before_it_resumes():
    opened_by = LINK.read_text(encoding="utf-8").partition('addEventListener("open"')[2]
    assert opened_by.index("filter: this.filter") < opened_by.index("resume: this.cursor")


def test_beyond_its_window_a_socket_gets_few_states_and_no_event():
    one = opened()
    for number in range(MESSAGE_WINDOW + 100):
        one.offer(event(number), at(20))
    assert one.is_behind
    for _ in range(MAX_STATES + 5):
        one.show(at(30), "{}")
    messages = taken(one)
    assert len(ids(messages)) == MESSAGE_WINDOW - 1  # and the snapshot
    assert [message["type"] for message in messages[MESSAGE_WINDOW - 1 :]] == ["state"] * MAX_STATES
    assert not one.can_recover
    assert one.acknowledge(20)
    assert one.can_recover


def test_large_messages_fill_the_window_too():
    one = opened()
    for number in range(MESSAGE_WINDOW):
        one.offer(event(number, data=json.dumps("x" * 7_000)), at(20))
    assert one.is_behind
    assert sum(map(len, one.take())) < 1.1 * socket.WINDOW_BYTES


def test_what_a_sampled_socket_is_spared_is_counted():
    one = opened(events_per_second=5)
    for number in range(20):
        one.offer(event(number), at(20))
    assert ids(taken(one)) == [0, 1, 2, 3, 4]
    one._rate = Rate(5, window_seconds=1)  # as a second later
    one.offer(event(20), at(20))
    assert [message["skipped"] for message in taken(one)] == [15]


def test_operators_see_no_secrets_and_no_content():
    one = opened(is_masked=True)
    one.offer(event(11, message="Authorization: Bearer qo_abcdefghijklmnopqrstuvwxyz0123456789"), at(10))
    [shown] = taken(one)
    assert shown["event"]["data"] is None
    assert "abcdefghijklmnop" not in shown["event"]["message"]


def test_data_that_is_too_long_is_left_out_and_said_to_be():
    one = opened()
    one.offer(event(11, data=json.dumps("x" * 9_000), message="y" * 2_000), at(10))
    [shown] = taken(one)
    assert (shown["event"]["data"], shown["event"]["cut"], len(shown["event"]["message"])) == (None, True, 1_000)


def test_nobody_acknowledges_what_was_never_sent():
    one = opened()
    assert one.acknowledge(10)
    assert not one.acknowledge(11)


def test_closing_drops_what_waits_and_says_why():
    one = opened()
    one.offer(event(11), at(10))
    one.close(CloseCode.SILENT, "why")
    one.close(CloseCode.TOO_SLOW, "later")
    one.offer(event(12), at(10))
    assert taken(one) == [{"type": "error", "code": "silent", "detail": "why"}]


@every_case(("given", "passes"), [
    ({}, True), ({"project": "acme"}, True), ({"project": "other"}, False),
    ({"service": "gemini", "state": "failed"}, True), ({"state": "completed"}, False),
    ({"service": None, "project": ""}, True),
])  # fmt: skip
def test_a_filter_lets_through_what_it_names(given: dict[str, Any], passes: bool):
    shown = event(1, service="gemini", to_status="failed")
    assert EventFilter.of(given).lets_through(shown) is passes


@every_case("given", [{"job": "x"}, {"project": 1}, {"state": "x" * 101}, {"state": "waiting"}])
def test_a_filter_of_anything_else_is_refused(given: dict[str, Any]):
    with pytest.raises(ValueError, match="filter"):
        EventFilter.of(given)


def test_a_socket_that_answers_no_ping_is_closed_though_more_pings_follow(monkeypatch: pytest.MonkeyPatch):
    one, silent = opened(), opened()
    for each in (one, silent):
        each.acknowledge(10)
    began = time.monotonic()
    for second in range(60):
        monkeypatch.setattr(time, "monotonic", lambda now=began + second: now)
        one.beat()
        silent.beat()
        one.hear()
    assert (one.closing, silent.closing) == (None, CloseCode.SILENT)


@pytest.mark.parametrize("answers", [True, False])
def test_after_a_process_stood_still_its_clients_are_heard_before_they_are_judged(
    monkeypatch: pytest.MonkeyPatch, answers: bool
):
    pinged, behind = opened(), opened()
    pinged.acknowledge(10)
    for number in range(MESSAGE_WINDOW + 1):
        behind.offer(event(number), at(20))
    moments = [time.monotonic()]
    monkeypatch.setattr(time, "monotonic", lambda: moments[-1])

    def beat(*seconds: float) -> None:
        for passed in seconds:
            moments.append(moments[-1] + passed)
            for each in (pinged, behind):
                each.beat()

    beat(*[1.0] * int(socket.PING_SECONDS))
    beat(socket.SLOW_SOCKET_SECONDS + 100)
    assert (pinged.closing, behind.closing) == (None, None), "what they have said was not read yet"
    if answers:
        for each in (pinged, behind):
            each.hear()
        behind.acknowledge(20)
        behind.release(Kind.STATE, at(21), "{}")
    beat(*[1.0] * int(socket.SILENT_SECONDS - 5))
    assert (pinged.closing, behind.closing) == ((None, None) if answers else (CloseCode.SILENT, CloseCode.SILENT))


def test_in_a_new_epoch_a_socket_gets_nothing_before_a_snapshot_of_it():
    one = opened()
    for number in range(MESSAGE_WINDOW):
        one.offer(event(number), at(2_000))
    taken(one)
    one.hold()
    one.begin_anew("new")
    one.offer(event(5), at(4, "new"))
    one.release(Kind.SNAPSHOT, at(2_000), "{}")  # what was read before
    one.replay([event(6)], since=5, cursor=at(2_000))
    one.show(at(4, "new"), "{}")
    assert taken(one) == []
    assert one.can_recover, "what it was sent in the old one fills its window"
    one.release(Kind.STATE, at(5, "new"), "{}")
    one.offer(event(6), at(5, "new"))
    messages = taken(one)
    assert [(message["type"], message["epoch"]) for message in messages] == [("snapshot", "new"), ("event", "new")]
    assert one.acknowledge(2_000, EPOCH), "an acknowledgement was on its way"
    assert len(one._sent) == 2
    assert one.acknowledge(5, "new")
    assert len(one._sent) == 0
