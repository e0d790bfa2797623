"""Allowances over HTTP: reserve, cancel, see what is left, list. Reporting is in test_usage_ingest.py."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.utils import timezone

from ratelimits.models import Allowance, UsageReservation, UsageTracking
from ratelimits.usage.api.inputs import MAX_USE
from tests.api.conftest import Api, error_of, key_for
from tests.api.usage import OTHER, RESERVE, USER, reserve
from tests.factories import make_allowance, make_reservation, make_usage_event, make_usage_month
from tests.support.api import pages, told

CANCEL, ME = "/usage/cancel/", "/usage/me/"
RESERVED = {"reservation_id", "user_id", "month", "amount", "expires_at", "remaining", "resets_at", "over_limit"}


def held() -> int:
    return sum(row.reserved for row in UsageTracking.objects.all())


def test_a_reservation_says_how_long_it_holds_and_what_is_left(key: Api):
    answer = reserve(key, 300)
    assert set(answer) == RESERVED
    assert (answer["user_id"], answer["amount"], answer["remaining"]) == (str(USER), 300, 700)
    assert answer["over_limit"] is False
    now = timezone.now()
    assert answer["month"] == f"{now:%Y-%m}"
    expires_at, resets_at = (datetime.fromisoformat(answer[name]) for name in ("expires_at", "resets_at"))
    assert timedelta(seconds=290) < expires_at - now <= timedelta(seconds=300)
    assert resets_at > now
    assert (resets_at.day, resets_at.hour) == (1, 0)
    assert UUID(answer["reservation_id"]) == UsageReservation.objects.get().pk


def test_one_unit_is_reserved_if_nothing_is_said(key: Api):
    assert key.post(RESERVE, {"user_id": str(USER)}).json()["amount"] == 1


def test_beyond_the_quota_nothing_is_held_and_the_figures_say_why(key: Api):
    reserve(key, 700)
    error = error_of(key.post(RESERVE, {"user_id": str(USER), "amount": 301}), 409)
    assert error["code"] == "quota_exceeded"
    assert error["details"]["remaining"] == 300
    assert error["details"]["quota"] == 1000
    assert datetime.fromisoformat(error["details"]["resets_at"]) > timezone.now()
    assert held() == 700
    assert reserve(key, 300)["remaining"] == 0


def test_a_policy_that_records_overage_grants_it_and_says_so(key: Api):
    Allowance.objects.update(policy="record_overage")
    assert reserve(key, 1001)["over_limit"] is True


def test_a_repeated_key_gets_the_same_reservation_and_holds_it_once(key: Api):
    body = {"user_id": str(USER), "amount": 100, "idempotency_key": "call-7"}
    first, second = (key.post(RESERVE, body) for _ in range(2))
    by_header = key.post(RESERVE, {"user_id": str(USER), "amount": 100}, **{"Idempotency-Key": "call-7"})
    assert [response.status_code for response in (first, second, by_header)] == [201] * 3
    assert first.json() == second.json() == by_header.json()
    assert ["Idempotency-Replayed" in response for response in (first, second, by_header)] == [False, True, True]
    assert held() == 100


@pytest.mark.parametrize("change", [{"amount": 101}, {"user_id": str(OTHER)}])
def test_a_key_that_was_used_for_another_reservation_is_refused(key: Api, change):
    reserve(key, idempotency_key="call-7")
    body = {"user_id": str(USER), "amount": 100, "idempotency_key": "call-7", **change}
    assert error_of(key.post(RESERVE, body), 422)["code"] == "idempotency_key_reused"
    assert held() == 100


def test_a_key_is_another_projects_to_use_as_well(key: Api):
    make_allowance("other")
    other = Api(key_for("other", scopes=["usage"]))
    assert reserve(key, idempotency_key="k")["reservation_id"] != reserve(other, idempotency_key="k")["reservation_id"]


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"amount": 0}, "amount"),
    ({"amount": -1}, "amount"),
    ({"amount": "7"}, "amount"),
    ({"amount": 1.0}, "amount"),
    ({"amount": True}, "amount"),
    ({"amount": None}, "amount"),
    ({"amount": MAX_USE + 1}, "amount"),
    ({"amount": 10**30}, "amount"),
    ({"idempotency_key": ""}, "idempotency_key"),
    ({"idempotency_key": "x" * 201}, "idempotency_key"),
    ({"idempotency_key": 7}, "idempotency_key"),
    ({"user_id": "7"}, "user_id"),
    ({"user_id": 7}, "user_id"),
    ({"user_id": None}, "user_id"),
    ({"colour": "red"}, "colour"),
]


def test_wrong_input_of_a_reservation_is_refused_by_the_name_of_the_field(key: Api):
    answers = [
        (address, change, field, told(key.post(address, {"user_id": str(USER), **change})))
        for address in (RESERVE, "/functions/reserve-usage")
        for change, field in WRONG
    ]
    assert [one for one in answers if one[3] != (422, "invalid_input", [one[2]])] == []
    assert held() == 0


def test_a_cancelled_reservation_is_released_once(key: Api):
    body = {"reservation_id": reserve(key, 300)["reservation_id"]}
    first, second = (key.post(CANCEL, body) for _ in range(2))
    assert first.status_code == second.status_code == 200
    assert set(first.json()) == {"reservation_id", "status", "released", "remaining", "resets_at"}
    assert (first.json()["status"], first.json()["released"], first.json()["remaining"]) == ("cancelled", True, 1000)
    assert second.json() == {**first.json(), "released": False}
    assert held() == 0


def test_a_reservation_that_is_over_stays_as_it_is(key: Api):
    for status in ("confirmed", "expired"):
        reservation = make_reservation(USER, status=status)
        answer = key.post(CANCEL, {"reservation_id": str(reservation.pk)}).json()
        assert (answer["status"], answer["released"]) == (status, False)


def test_what_names_no_reservation_cancels_none(key: Api):
    for body in ({}, {"reservation_id": "7"}, {"reservation_id": 7}, {"reservation_id": None}):
        assert told(key.post(CANCEL, body))[::2] == (422, ["reservation_id"]), body


def test_a_user_stands_where_reservations_and_events_put_it(key: Api):
    make_usage_event(USER, amount=200)
    reserve(key, 300)
    answer = key.get(f"{ME}?user_id={USER}").json()
    assert answer.pop("resets_at").endswith("Z")
    assert answer == {
        "user_id": str(USER),
        "unit": "tokens",
        "policy": "strict",
        "month": f"{timezone.now():%Y-%m}",
        "quota": 1000,
        "used": 200,
        "reserved": 300,
        "overage": 0,
        "remaining": 500,
    }


def test_looking_at_a_user_nobody_knows_stores_nothing(key: Api):
    assert key.get(f"{ME}?user_id={USER}").json()["remaining"] == 1000
    assert not UsageTracking.objects.exists()


def test_a_key_names_the_user_it_looks_at(key: Api):
    for query, status, field in (
        ("", 422, "user_id"),
        ("?user_id=7", 400, "user_id"),
        ("?user_id=%00", 400, "user_id"),
        (f"?user_id={USER}&colour=red", 400, "colour"),
    ):
        assert told(key.get(ME + query))[::2] == (status, [field]), query


def test_a_project_without_an_allowance_says_so(db):
    key = Api(key_for("bare", scopes=["usage"]))
    event = {"event_id": str(uuid4()), "user_id": str(USER), "tokens": 1, "ts": timezone.now().isoformat()}
    answers = (
        key.post(RESERVE, {"user_id": str(USER)}),
        key.post("/usage/ingest/", [event]),
        key.get(f"{ME}?user_id={USER}"),
    )
    assert [error_of(answer, 404)["code"] for answer in answers] == ["no_allowance"] * 3


def test_months_are_listed_for_a_back_office(key: Api):
    rows = [make_usage_month(USER, month=month) for month in ("2026-09", "2026-10")] + [make_usage_month(OTHER)]
    make_usage_month(USER, project="other")
    shown = key.get("/usage/").json()["results"]
    assert [row["id"] for row in shown] == [row.pk for row in reversed(rows)]
    assert shown[2] == {
        "id": rows[0].pk,
        "user_id": str(USER),
        "month": "2026-09",
        "quota": 1000,
        "used": 0,
        "reserved": 0,
        "overage": 0,
    }
    assert [row["month"] for row in key.get(f"/usage/?user_id={USER}&month=2026-10").json()["results"]] == ["2026-10"]
    assert len(pages(key, "/usage/")) == 3


def test_a_users_events_are_listed(key: Api):
    events = [make_usage_event(USER, amount=amount, over_limit=amount > 2) for amount in (1, 2, 3, 4)]
    make_usage_event(OTHER)
    make_usage_event(USER, project="other")
    shown = key.get(f"/usage/events/?user_id={USER}").json()["results"]
    assert [row["event_id"] for row in shown] == [str(event.event_id) for event in reversed(events)]
    assert [row["amount"] for row in key.get(f"/usage/events/?user_id={USER}&over_limit=true").json()["results"]] == [
        4,
        3,
    ]
    assert key.get(f"/usage/events/?user_id={USER}&month=1999-01").json()["results"] == []
    assert len(pages(key, f"/usage/events/?user_id={USER}")) == 4
    assert list(error_of(key.get("/usage/events/"), 400)["fields"]) == ["user_id"]


def test_the_aliases_do_and_answer_the_same(key: Api):
    made = key.post("/functions/reserve-usage", {"user_id": str(USER), "amount": 5})
    assert (made.status_code, set(made.json())) == (201, RESERVED)
    reservation_id = made.json()["reservation_id"]
    event = {"event_id": str(uuid4()), "user_id": str(USER), "tokens": 1, "ts": timezone.now().isoformat()}
    ingested = key.post("/functions/ingest-usage", [event]).json()
    assert ingested["results"] == [{"event_id": event["event_id"], "status": "accepted"}]
    cancelled = key.post("/functions/cancel-reservation", {"reservation_id": reservation_id}).json()
    assert (cancelled["status"], cancelled["released"]) == ("cancelled", True)
    assert json.dumps(key.get(f"{ME}?user_id={USER}").json()["used"]) == "1"


def test_the_addresses_are_taken_with_and_without_their_last_slash(key: Api):
    for address in (RESERVE, "/functions/reserve-usage/"):
        for spelling in (address, address.removesuffix("/")):
            assert key.post(spelling, {"user_id": str(USER)}).status_code == 201
    for address in (f"/usage/me?user_id={USER}", "/usage", f"/usage/events?user_id={USER}"):
        assert key.get(address).status_code == 200


def test_an_allowance_is_a_projects_own(key: Api):
    make_allowance("other", unit="tokens")
    other = Api(key_for("other", scopes=["usage"]))
    make_usage_event(USER, amount=80)
    assert [len(one.get("/usage/").json()["results"]) for one in (key, other)] == [1, 0]
    assert [len(one.get(f"/usage/events/?user_id={USER}").json()["results"]) for one in (key, other)] == [1, 0]
    assert [one.get(f"{ME}?user_id={USER}").json()["used"] for one in (key, other)] == [80, 0]
