"""Reporting calls that were made: each event by itself, none dropped, none counted twice."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from queueops.core.values.numbers import ENVELOPE_BYTES, MEGABYTE
from ratelimits.models import UsageEvent, UsageReservation, UsageTracking
from ratelimits.usage.api.events import MAX_ECHO_LENGTH
from ratelimits.usage.api.inputs import MAX_EVENTS, MAX_USE
from tests.api.conftest import Api, error_of, key_for
from tests.api.usage import OTHER, USER, reserve
from tests.factories import make_allowance, make_project, make_reservation
from tests.support.api import told
from tests.support.examples import examples

INGEST = "/usage/ingest/"
ADDRESSES = [INGEST, "/usage/ingest", "/functions/ingest-usage", "/functions/ingest-usage/"]
Event = dict[str, Any]


def an_event(**fields: Any) -> Event:
    """A good one, of now."""
    ts = timezone.now().isoformat()
    return {"event_id": str(uuid4()), "user_id": str(USER), "tokens": 10, "ts": ts, **fields}


def ingest(api: Api, *events: Any, address: str = INGEST) -> list[Event]:
    response = api.post(address, events)
    assert response.status_code == 200, response.content
    results: list[Event] = response.json()["results"]
    assert len(results) == len(events)
    return results


def statuses(results: list[Event]) -> list[str]:
    return [result["status"] for result in results]


def used(user_id: UUID = USER) -> int:
    return sum(row.used for row in UsageTracking.objects.filter(user_id=user_id))


def test_an_event_is_counted_once_and_the_answer_says_how_its_user_stands(key: Api):
    for number, address in enumerate(ADDRESSES, 1):
        event = an_event(tokens=100, service="gemini")
        first, second = (key.post(address, body) for body in ([event], {"events": [event]}))
        assert first.json()["results"] == [{"event_id": event["event_id"], "status": "accepted"}]
        assert second.json()["results"] == [{"event_id": event["event_id"], "status": "duplicate"}]
        for response in (first, second):
            [standing] = response.json()["usage"]
            counted = 100 * number
            assert (standing["user_id"], standing["used"], standing["remaining"]) == (
                str(USER),
                counted,
                1000 - counted,
            )
    assert used() == 100 * len(ADDRESSES)


def test_each_event_has_its_own_result_in_order(key: Api):
    counted = an_event()
    reservation = reserve(key, 100)["reservation_id"]
    now = timezone.now()
    events: list[Any] = [
        counted,
        {**counted, "tokens": 999},
        an_event(tokens=80, reservation_id=reservation),
        7,
        an_event(tokens=-1),
        an_event(ts=(now - timedelta(days=36)).isoformat()),
        an_event(ts=(now + timedelta(minutes=6)).isoformat()),
        an_event(tokens=5000),
        an_event(user_id=str(OTHER), tokens=0),
    ]
    results = ingest(key, *events)
    assert statuses(results) == [
        *("accepted", "duplicate", "accepted", "rejected", "rejected", "rejected", "rejected"),
        *("over_limit", "accepted"),
    ]
    assert [result.get("reason") for result in results[3:7]] == ["malformed", "malformed", "too_old", "from_future"]
    assert all(result["message"] for result in results[3:7])
    assert [result["event_id"] for result in results] == [None if event == 7 else event["event_id"] for event in events]
    assert used() == 10 + 80 + 5000
    assert UsageReservation.objects.get().status == "confirmed"


MALFORMED: list[tuple[Any, str]] = [
    (None, "object"),
    ("x", "object"),
    ([], "object"),
    ({}, "event_id must"),
    ({"event_id": None}, "event_id must"),
    ({"event_id": 7}, "event_id must"),
    ({"event_id": "7"}, "event_id must"),
    ({"user_id": "me"}, "user_id must"),
    ({"user_id": 7}, "user_id must"),
    ({"user_id": None}, "user_id must"),
    ({"tokens": -1}, "tokens must"),
    ({"tokens": 1.5}, "tokens must"),
    ({"tokens": 10.0}, "tokens must"),
    ({"tokens": "10"}, "tokens must"),
    ({"tokens": True}, "tokens must"),
    ({"tokens": None}, "tokens must"),
    ({"tokens": MAX_USE + 1}, "tokens must"),
    ({"tokens": 10**400}, "tokens must"),
    ({"ts": "yesterday"}, "ts must"),
    ({"ts": "2026-11-22T10:00:00"}, "ts must"),
    ({"ts": "2026-11-22"}, "ts must"),
    ({"ts": "1795341600"}, "ts must"),
    ({"ts": 1_795_341_600}, "ts must"),
    ({"ts": None}, "ts must"),
    ({"ts": "2026-02-30T10:00:00Z"}, "ts must"),
    ({"ts": "0001-01-01T00:00:00+14:00"}, "ts must"),
    ({"ts": "9999-12-31T23:59:59-14:00"}, "ts must"),
    ({"reservation_id": "7"}, "reservation_id must"),
    ({"reservation_id": 7}, "reservation_id must"),
    ({"service": 7}, "service must"),
    ({"service": None}, "service must"),
    ({"service": "x" * 65}, "service must"),
    ({"service": "a\0b"}, "service must"),
    ({"colour": "red"}, "known fields are"),
    ({"\0": "red", "tokens": -1}, "tokens must"),
]


def test_what_is_wrong_with_one_event_rejects_it_alone(key: Api):
    changes = [*MALFORMED, *((None, f"{field}") for field in ("event_id", "user_id", "tokens", "ts"))]
    bad: list[Any] = [
        {**an_event(), **change} if isinstance(change, dict) and change else change for change, _ in MALFORMED
    ]
    for field in ("event_id", "user_id", "tokens", "ts"):
        bad.append(an_event())
        del bad[-1][field]
    results = ingest(key, *(one for each in bad for one in (each, an_event())))
    assert statuses(results) == ["rejected", "accepted"] * len(bad)
    faults = {
        repr(change)[:40]: result
        for (change, message), result in zip(changes, results[::2], strict=True)
        if result["reason"] != "malformed" or message not in result["message"]
    }
    assert faults == {}
    assert [result["message"].partition(" ")[0] for result in results[-8::2]] == ["event_id", "user_id", "tokens", "ts"]
    assert [result["event_id"] for result in results[-8::2]] == [event.get("event_id") for event in bad[-4:]]
    assert used() == 10 * len(bad)


def test_an_answer_repeats_nothing_of_an_event_but_its_id(key: Api):
    secret = "<b>sk-live-7c1f</b>"
    for name in ("user_id", "tokens", "ts", "reservation_id", secret):
        assert secret not in key.post(INGEST, [an_event(**{name: secret})]).content.decode()
    long = "7" * (MAX_ECHO_LENGTH + 1)
    assert [row["event_id"] for row in ingest(key, an_event(event_id=long), an_event(event_id=long[1:]))] == [
        None,
        long[1:],
    ]


def test_an_id_comes_back_as_it_was_spelt(key: Api):
    event = an_event()
    spellings = [event["event_id"].upper(), event["event_id"], event["event_id"].replace("-", "")]
    results = ingest(key, *({**event, "event_id": spelling} for spelling in spellings))
    assert [result["event_id"] for result in results] == spellings
    assert statuses(results) == ["accepted", "duplicate", "duplicate"]


def test_a_time_is_taken_with_any_offset(key: Api):
    now = datetime.now(UTC)
    moments = [
        now.isoformat().replace("+00:00", "Z"),
        *((now + timedelta(hours=hours)).replace(tzinfo=None).isoformat() + f"{hours:+03d}:00" for hours in (-23, 23)),
    ]
    assert statuses(ingest(key, *(an_event(ts=ts) for ts in moments))) == ["accepted"] * 3
    times = list(UsageEvent.objects.values_list("occurred_at", flat=True))
    assert all(abs(time - now) < timedelta(seconds=1) for time in times)


def test_numbers_and_texts_are_taken_up_to_their_ends(key: Api):
    events = [
        an_event(tokens=0),
        an_event(tokens=MAX_USE),
        an_event(service="\U0001f600" * 64),
        an_event(service=""),
    ]
    assert statuses(ingest(key, *events)) == ["accepted", "over_limit", "over_limit", "over_limit"]


NO_LIST: list[tuple[bytes, tuple[int, str]]] = [
    (b"", (422, "invalid_input")),
    (b"[]", (422, "invalid_input")),
    (b"{}", (422, "invalid_input")),
    (b"7", (422, "invalid_input")),
    (b"null", (422, "invalid_input")),
    (b'"events"', (422, "invalid_input")),
    (b'{"events": []}', (422, "invalid_input")),
    (b'{"events": {}}', (422, "invalid_input")),
    (b'{"events": null}', (422, "invalid_input")),
    (b'{"events": [{}], "more": 1}', (422, "invalid_input")),
    (json.dumps([{}] * (MAX_EVENTS + 1)).encode(), (422, "invalid_input")),
    (b"[{}", (400, "malformed_json")),
    (b"[NaN]", (400, "malformed_json")),
    (b"[Infinity]", (400, "malformed_json")),
    (b'["\\ud800"]', (400, "malformed_json")),
    (b'["\xff"]', (400, "malformed_json")),
    (b"[" * 100_000 + b"]" * 100_000, (400, "too_deep")),
    (b" " * 3_000_000, (413, "body_too_large")),
    (b'{"evnts": []}', (422, "invalid_input")),
    (b'{"events": [], "user_id": "018f6a52-0000-7000-8000-000000000001"}', (422, "invalid_input")),
]


def test_a_body_that_is_no_list_of_events_is_refused_as_a_whole(key: Api):
    answers = [
        (address, body[:40], expected, told(key.send("POST", address, body))[:2])
        for address in ADDRESSES[:3:2]
        for body, expected in NO_LIST
    ]
    assert [one for one in answers if one[2] != one[3]] == []
    assert not UsageEvent.objects.exists()


def test_numbers_too_large_and_nul_characters_stay_their_events_own_fault(key: Api):
    good = json.dumps(an_event())
    bad = ['{"tokens": 1e999}', '{"tokens": -1e999}', '{"event_id": "\\u0000"}', '"\\u0000"', '{"\\u0000": 1}']
    response = key.send("POST", INGEST, f"[{','.join([*bad, good])}]")
    assert statuses(response.json()["results"]) == ["rejected"] * 5 + ["accepted"]


def test_a_thousand_of_the_longest_events_fit_into_the_smallest_body_that_may_be_set(key: Api):
    ts = timezone.now().strftime("%Y-%m-%dT%H:%M:%S.%f+00:00")
    reservation = str(make_reservation(USER, amount=1).pk)
    longest = {"tokens": MAX_USE, "ts": ts, "reservation_id": reservation, "service": "\U0001f600" * 64}
    body = json.dumps([an_event(**longest) for _ in range(MAX_EVENTS)], ensure_ascii=False, indent=1).encode()
    assert len(body) < MEGABYTE + ENVELOPE_BYTES
    response = key.send("POST", INGEST, body)
    assert len(response.json()["results"]) == MAX_EVENTS
    assert UsageEvent.objects.count() == MAX_EVENTS


def test_the_reservation_of_somebody_else_counts_as_none(key: Api):
    theirs = [make_reservation(OTHER, amount=10), make_reservation(USER, project="other", amount=10)]
    events = [an_event(reservation_id=str(one.pk)) for one in theirs] + [an_event(reservation_id=str(uuid4()))]
    assert statuses(ingest(key, *events)) == ["accepted"] * 3
    assert [UsageReservation.objects.get(pk=one.pk).status for one in theirs] == ["active", "active"]
    assert used() == 30


def test_the_same_id_is_another_projects_to_use_as_well(key: Api):
    make_allowance("other")
    event = an_event()
    other = Api(key_for("other", scopes=["usage"]))
    assert statuses(ingest(key, event) + ingest(other, event)) == ["accepted", "accepted"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner),
    max_leaves=4,
)
FIELDS = ("event_id", "user_id", "tokens", "ts", "reservation_id", "service")
GOOD = st.just(None)  # made afresh, of now
BAD = JSON | st.dictionaries(st.sampled_from(FIELDS), JSON).map(lambda change: {"of a good one": change})


def as_sent(drawn: Any) -> Any:
    if drawn is None:
        return an_event()
    if isinstance(drawn, Mapping) and "of a good one" in drawn:
        return {**an_event(), **drawn["of a good one"]}
    return drawn


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(drawn=st.lists(GOOD | BAD, min_size=1, max_size=8))
def test_whatever_comes_with_it_a_good_event_is_counted_and_no_body_is_an_error_of_ours(key: Api, drawn):
    events = [as_sent(one) for one in drawn]
    good = [event["event_id"] for event, one in zip(events, drawn, strict=True) if one is None]
    # As other programs write it: NaN and infinities, which JSON has not, as numbers that are too large.
    body = json.dumps(events).replace("NaN", "-1e999").replace("Infinity", "1e999")
    response = key.send("POST", INGEST, body)
    assert response.status_code == 200, response.content
    results = response.json()["results"]
    assert len(results) == len(events)
    taken = {result["event_id"] for result in results if result["status"] in {"accepted", "over_limit"}}
    assert set(good) <= taken
    stored = set(map(str, UsageEvent.objects.filter(event_id__in=good).values_list("event_id", flat=True)))
    assert stored == set(good)
    rows = UsageTracking.objects.all()
    assert sum(row.used for row in rows) == sum(event.amount for event in UsageEvent.objects.all())


@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])
@given(body=st.binary(max_size=200) | st.text(alphabet='[]{}",:\\u0019eE+-. ', max_size=60).map(str.encode))
def test_no_bytes_are_an_error_of_ours(key: Api, body):
    assert key.send("POST", INGEST, body).status_code in {200, 400, 422}


def test_a_project_that_nobody_gave_an_allowance_counts_nothing(db):
    make_project("bare")
    bare = Api(key_for("bare", scopes=["usage"]))
    assert error_of(bare.post(INGEST, [an_event()]), 404)["code"] == "no_allowance"
    assert not UsageEvent.objects.exists()


def test_one_event_may_come_by_itself(key: Api):
    event = an_event()
    assert statuses(key.post("/usage/ingest/", event).json()["results"]) == ["accepted"]
    assert statuses(key.post("/functions/ingest-usage", event).json()["results"]) == ["duplicate"]
    [result] = key.post("/usage/ingest/", {**event, "tokens": -1}).json()["results"]
    assert (result["event_id"], result["status"], result["reason"]) == (event["event_id"], "rejected", "malformed")
    assert used() == 10
