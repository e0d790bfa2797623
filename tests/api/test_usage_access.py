"""Who may use the addresses of allowances, and for whom."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from django.utils import timezone

from queueops.audit.models import AuditEntry
from ratelimits.models import Allowance, UsageEvent, UsageReservation, UsageTracking
from tests.api.conftest import Api, error_of, key_for
from tests.factories import make_allowance, make_reservation, make_usage_event, make_usage_month
from tests.support.issuers import OTHER_USER, USER, make_issuer, shared_token
from tests.support.people import permitted


def an_event(**fields: Any) -> dict[str, Any]:
    return {"event_id": str(uuid4()), "tokens": 10, "ts": timezone.now().isoformat(), **fields}


@pytest.fixture(autouse=True)
def allowance(db: None) -> None:
    make_allowance("acme", unit="tokens")


@pytest.fixture
def mine() -> Api:
    """A user's app."""
    make_issuer(scopes=["usage"])
    return Api(shared_token(USER))


def posted(client: Client, path: str, body: Any) -> Any:
    response = client.post(f"/api/v1/usage/{path}/?project=acme", json.dumps(body), content_type="application/json")
    assert response.status_code < 300, response.content
    return response.json()


def test_the_audit_trail_tells_once_what_an_operator_did_to_a_users_month(db):
    make_allowance()
    client = permitted("add_usageevent", "cancel_reservation")
    event, again = an_event(user_id=str(USER)), an_event(user_id=str(USER))
    of_user = {"user_id": str(USER), "month": f"{timezone.now():%Y-%m}"}
    reservation_id = ""
    for _ in range(2):
        asked = {"user_id": str(USER), "amount": 7, "idempotency_key": "once"}
        reservation_id = posted(client, "reserve", asked)["reservation_id"]
        posted(client, "ingest", [event])
        posted(client, "cancel", {"reservation_id": reservation_id})
    posted(client, "ingest", [event, again, an_event(user_id=str(USER))])
    reservation, held = f"reservation {reservation_id}", {**of_user, "amount": 7}
    counted = {**of_user, "event_id": event["event_id"], "amount": 1}
    entries = list(AuditEntry.objects.order_by("pk"))
    assert [(one.action, one.target, one.before, one.after) for one in entries[:3]] == [
        ("reserve_usage", reservation, None, held),
        ("ingest_usage", f"usage event {event['event_id']}", None, [counted]),
        ("cancel_reservation", reservation, held, None),
    ]
    [last] = entries[3:]
    assert (last.target, len(last.after or [])) == ("2 usage events", 2)
    operator = f"user:{client.session['_auth_user_id']}"
    assert {(one.actor, one.project_id) for one in entries} == {(operator, "acme")}


def test_a_refusal_to_an_operator_is_counted_and_leaves_no_entry(db):
    make_allowance(quota=1)
    body = json.dumps({"user_id": str(USER), "amount": 2})
    make_usage_month(USER)
    answer = permitted("add_usageevent").post(
        "/api/v1/usage/reserve/?project=acme", body, content_type="application/json"
    )
    assert error_of(answer, 409)["code"] == "quota_exceeded"
    assert UsageTracking.objects.get().refused == 1
    assert not AuditEntry.objects.exists()


@pytest.mark.parametrize("by_key", [True, False])
def test_of_what_keys_and_users_do_the_ledger_alone_tells(mine: Api, by_key):
    api = Api(key_for("acme", scopes=["usage"])) if by_key else mine
    made = api.post("/usage/reserve/", {"user_id": str(USER)}).json()
    assert api.post("/usage/cancel/", {"reservation_id": made["reservation_id"]}).json()["released"]
    assert api.post("/usage/ingest/", [an_event(user_id=str(USER))]).json()["results"][0]["status"] == "accepted"
    assert not AuditEntry.objects.exists()


def test_a_reservation_is_cancelled_also_where_the_allowance_is_gone(mine: Api):
    made = mine.post("/usage/reserve/", {"amount": 7}).json()
    Allowance.objects.all().delete()
    answer = mine.post("/usage/cancel/", {"reservation_id": made["reservation_id"]})
    assert (answer.status_code, answer.json()) == (200, {
        "reservation_id": made["reservation_id"],
        "status": "cancelled",
        "released": True,
        "remaining": None,
        "resets_at": None,
    })  # fmt: skip
    assert UsageTracking.objects.get().reserved == 0


@pytest.mark.parametrize("named", [{}, {"user_id": str(USER)}])
def test_a_users_app_acts_for_its_user_and_need_not_say_so(mine: Api, named):
    reserved = mine.post("/usage/reserve/", {"amount": 100, **named})
    assert (reserved.status_code, reserved.json()["user_id"]) == (201, str(USER))
    reservation_id = reserved.json()["reservation_id"]
    answer = mine.post("/functions/ingest-usage", [an_event(tokens=80, reservation_id=reservation_id, **named)]).json()
    assert [row["status"] for row in answer["results"]] == ["accepted"]
    standing = mine.get("/usage/me", **({} if named else {"X-Project": "acme"})).json()
    assert (standing["user_id"], standing["used"], standing["reserved"]) == (str(USER), 80, 0)
    assert answer["usage"] == [standing]
    other = mine.post("/usage/reserve/", {"amount": 100}).json()["reservation_id"]
    assert mine.post("/usage/cancel/", {"reservation_id": other}).json()["released"] is True


def test_a_users_app_reserves_and_looks_for_nobody_else(mine: Api):
    for response in (
        mine.post("/usage/reserve/", {"user_id": str(OTHER_USER)}),
        mine.get(f"/usage/me/?user_id={OTHER_USER}"),
    ):
        error = error_of(response, 403)
        assert (error["code"], list(error["fields"])) == ("foreign_user", ["user_id"])
    assert not UsageTracking.objects.exists()


def test_a_users_app_reports_for_nobody_else_and_its_own_events_count(mine: Api):
    results = mine.post("/usage/ingest/", [an_event(), an_event(user_id=str(OTHER_USER)), an_event()]).json()["results"]
    assert [row["status"] for row in results] == ["accepted", "rejected", "accepted"]
    assert results[1]["reason"] == "foreign_user"
    assert list(UsageEvent.objects.values_list("user_id", flat=True)) == [USER, USER]


def test_a_users_app_neither_cancels_nor_confirms_the_reservation_of_somebody_else(mine: Api):
    theirs = make_reservation(OTHER_USER, amount=10)
    body = {"reservation_id": str(theirs.pk)}
    unknown = mine.post("/usage/cancel/", {"reservation_id": str(uuid4())})
    assert error_of(mine.post("/usage/cancel/", body), 404) == error_of(unknown, 404)
    [result] = mine.post("/usage/ingest/", [an_event(**body)]).json()["results"]
    assert result["status"] == "accepted"
    assert UsageReservation.objects.get().status == "active"
    assert UsageTracking.objects.get(user_id=OTHER_USER).reserved == 10


def test_a_users_app_lists_its_users_use_alone(mine: Api):
    own, theirs = make_usage_event(USER), make_usage_event(OTHER_USER)
    assert [row["user_id"] for row in mine.get("/usage/").json()["results"]] == [str(USER)]
    assert [row["event_id"] for row in mine.get("/usage/events/").json()["results"]] == [str(own.event_id)]
    assert mine.get(f"/usage/events/?user_id={OTHER_USER}").json()["results"] == []
    assert mine.get(f"/usage/?user_id={OTHER_USER}").json()["results"] == []
    assert str(theirs.event_id) not in mine.get("/usage/events/").content.decode()


def test_an_event_that_somebody_else_has_reported_is_a_duplicate_and_says_nothing_of_them(mine: Api):
    theirs = make_usage_event(OTHER_USER, amount=7)
    answer = mine.post("/usage/ingest/", [an_event(event_id=str(theirs.event_id))]).json()
    assert [row["status"] for row in answer["results"]] == ["duplicate"]
    assert [row["user_id"] for row in answer["usage"]] == [str(USER)]
    assert not UsageTracking.objects.filter(user_id=USER, used__gt=0).exists()


def test_two_users_may_choose_the_same_key_and_each_has_a_reservation_of_its_own(mine: Api):
    other = Api(shared_token(OTHER_USER))
    body = {"amount": 5, "idempotency_key": "call-1"}
    first, theirs, again = (api.post("/usage/reserve/", body) for api in (mine, other, mine))
    assert [response.status_code for response in (first, theirs, again)] == [201] * 3
    assert first.json() == again.json()
    assert theirs.json()["user_id"] == str(OTHER_USER)
    assert error_of(mine.post("/usage/reserve/", {**body, "amount": 6}), 422)["code"] == "idempotency_key_reused"
    assert UsageReservation.objects.count() == 2
