"""POST /api/v1/ratelimits/decide: decisions for other programs."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection
from django.db.models.functions import Now

from queueops.core.embedded.cluster import EmbeddedServer
from ratelimits.limiter.answers import Asking, ask, forget_answers
from ratelimits.limiter.decide import Call, Settlement, reclaim_expired
from ratelimits.limiter.outage import LimiterUnavailable, outage
from ratelimits.limiter.view.gauges import gauges
from ratelimits.limits import catalogue
from ratelimits.models import CallTally, Charge, Counter, DecideAnswer, Limit
from ratelimits.subjects import Subject
from tests.api.conftest import Api, error_of, key_for
from tests.support.api import told
from tests.support.processes import database_url, free_port, manage, wait_for
from tests.support.racing import run_together

DECIDE = "/ratelimits/decide"
CALL = {"service": "sheets", "call_type": "write"}


@pytest.fixture(autouse=True)
def afresh() -> Iterator[None]:
    """What a process remembers belongs to the test before."""
    outage.end()
    catalogue.forget()
    yield
    outage.end()


@pytest.fixture
def asker(db: None) -> Api:
    return Api(key_for("acme", scopes=["decide"]))


def make_limit(**figures: Any) -> Limit:
    limit = Limit.objects.create(**{"name": "hot", "service": "sheets", "scope": "project", "capacity": 3, **figures})
    catalogue.forget()
    return limit


def decide(api: Api, *calls: Mapping[str, Any], **headers: str) -> list[dict[str, Any]]:
    response = api.post(DECIDE, {"calls": calls or [CALL]}, **headers)
    assert response.status_code == 200, response.content
    decisions: list[dict[str, Any]] = response.json()["decisions"]
    return decisions


def kinds(decisions: list[dict[str, Any]]) -> list[str]:
    return [decision["kind"] for decision in decisions]


def used() -> float:
    return sum(gauge.used for gauge in gauges())


def test_calls_proceed_while_there_is_room_and_then_are_told_when_there_is_again(asker: Api):
    make_limit()
    decisions = decide(asker, *[CALL] * 4)
    assert kinds(decisions) == ["proceed", "proceed", "proceed", "defer"]
    assert decisions[0] == {
        "kind": "proceed",
        "retry_at": None,
        "retry_after_seconds": None,
        "reason": "",
        "binding": None,
        "holder": None,
    }
    denied = decisions[3]
    assert denied["binding"] == {
        "limit": "hot",
        "key": "project:acme",
        "unit": "requests",
        "needed": 1,
        "available": 0,
        "capacity": 3,
        "hard_reset": False,
        "cooling": False,
    }
    assert 0 < denied["retry_after_seconds"] <= 65
    assert datetime.fromisoformat(denied["retry_at"]).utcoffset() == timedelta()
    assert CallTally.objects.get().calls == 3


def test_the_address_is_taken_with_and_without_its_last_slash(asker: Api):
    make_limit()
    for path in ("/ratelimits/decide", "/ratelimits/decide/"):
        assert asker.post(path, {"calls": [CALL]}).json()["decisions"][0]["kind"] == "proceed"
    for path in ("/ratelimits/settle", "/ratelimits/settle/"):
        assert asker.post(path, {"holder": "api:acme:x"}).json() == {"holder": "api:acme:x", "settled": False}


def test_a_counter_that_the_provider_refused_says_retry(asker: Api):
    make_limit()
    decide(asker)
    Counter.objects.update(blocked_until=Now() + timedelta(seconds=30), blocked_reason="429 by the provider")
    [decision] = decide(asker)
    assert (decision["kind"], decision["binding"]["cooling"]) == ("retry", True)
    assert decision["reason"] == "429 by the provider"
    assert 25 < decision["retry_after_seconds"] <= 30


def test_a_service_without_any_limit_is_rejected_and_one_whose_limits_are_off_is_not(asker: Api):
    make_limit(service="off", enabled=False)
    unknown, off = decide(asker, {**CALL, "service": "unheard"}, {**CALL, "service": "off"})
    assert (unknown["kind"], off["kind"]) == ("reject", "proceed")
    assert unknown["reason"] == "No limit is configured for 'unheard'."
    assert unknown["retry_at"] is None


@pytest.mark.parametrize("cost", [-1, -0.5])
def test_a_malformed_cost_is_rejected_for_its_call_alone(asker: Api, cost):
    make_limit()
    before, malformed, known, behind = decide(asker, CALL, {**CALL, "cost": cost}, {**CALL, "known_cost": cost}, CALL)
    assert kinds([before, malformed, known, behind]) == ["proceed", "reject", "reject", "proceed"]
    assert "finite number, zero or more" in malformed["reason"]
    assert used() == 2


def test_a_cost_above_the_cap_is_rejected_when_it_is_known_and_cut_when_it_is_a_guess(asker: Api):
    make_limit(unit="tokens", capacity=1000)
    known, guessed = decide(asker, {**CALL, "cost": 1001}, {**CALL, "cost": 5000, "known_cost": 100})
    assert (known["kind"], guessed["kind"]) == ("reject", "proceed")
    assert known["binding"]["limit"] == "hot"
    assert used() == 500


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"cost": "7"}, "calls.0.cost"),
    ({"cost": True}, "calls.0.cost"),
    ({"cost": None}, "calls.0.cost"),
    ({"cost": 1e300}, "calls.0.cost"),
    ({"call_type": "any"}, "calls.0.call_type"),
    ({"call_type": None}, "calls.0.call_type"),
    ({"service": ""}, "calls.0.service"),
    ({"service": "x" * 65}, "calls.0.service"),
    ({"user": "x" * 101}, "calls.0.user"),
    ({"user": 7}, "calls.0.user"),
    ({"colour": "red"}, "calls.0.colour"),
    ({"project": "other"}, "calls.0.project"),
    ({"project": ""}, "calls.0.project"),
]


def test_wrong_input_is_refused_by_the_path_of_the_field_and_charges_nothing(asker: Api):
    make_limit()
    answers = [(change, field, told(asker.post(DECIDE, {"calls": [{**CALL, **change}]}))) for change, field in WRONG]
    assert [one for one in answers if one[2] != (422, "invalid_input", [one[1]])] == []
    for seconds in (0, 86_401, "60"):
        answer = asker.post(DECIDE, {"calls": [CALL], "hold_seconds": seconds})
        assert told(answer) == (422, "invalid_input", ["hold_seconds"])
    no_calls: list[Any] = [{}, {"calls": []}, {"calls": [CALL] * 1001}, CALL, {"calls": CALL}]
    for body in no_calls:
        assert told(asker.post(DECIDE, body))[:2] == (422, "invalid_input")
    for settled in ({}, {"holder": ""}, {"holder": "api:acme:x", "actual": -1}, {"holder": 7}):
        assert told(asker.post("/ratelimits/settle", settled))[:2] == (422, "invalid_input")
    assert not Counter.objects.exists()


def test_a_request_has_up_to_a_thousand_calls(asker: Api):
    make_limit(capacity=5000)
    assert len(decide(asker, *[CALL] * 1000)) == 1000


def test_a_key_decides_for_its_own_project_alone(asker: Api):
    make_limit()
    assert kinds(decide(asker, {**CALL, "project": "acme"})) == ["proceed"]
    assert [counter.key for counter in Counter.objects.all()] == ["project:acme"]
    other = Api(key_for("other", scopes=["decide"]))
    assert kinds(decide(other, *[CALL] * 3)) == ["proceed"] * 3


def test_a_place_in_flight_is_held_until_it_is_settled_once(asker: Api):
    make_limit(unit="in_flight", algorithm="concurrency", capacity=1)
    first, second = decide(asker, CALL, CALL)
    assert (first["kind"], second["kind"], second["holder"]) == ("proceed", "defer", None)
    body = {"holder": first["holder"]}
    assert asker.post("/ratelimits/settle", body).json() == {**body, "settled": True}
    assert asker.post("/ratelimits/settle", body).json() == {**body, "settled": False}
    assert kinds(decide(asker, CALL, CALL)) == ["proceed", "defer"]


def test_an_estimate_is_corrected_by_what_the_call_really_cost(asker: Api):
    make_limit(unit="tokens", capacity=1000)
    [decision] = decide(asker, {**CALL, "cost": 400})
    assert used() == 400
    for _ in range(2):
        asker.post("/ratelimits/settle", {"holder": decision["holder"], "actual": 150})
        assert used() == 150
    assert not Charge.objects.exists()


def test_another_projects_call_cannot_be_settled(asker: Api):
    make_limit(unit="in_flight", algorithm="concurrency")
    [decision] = decide(asker)
    other = Api(key_for("other", scopes=["decide"]))
    theirs = error_of(other.post("/ratelimits/settle", {"holder": decision["holder"]}), 404)
    unknown = error_of(other.post("/ratelimits/settle", {"holder": "api:acme:none"}), 404)
    assert theirs == unknown
    assert Charge.objects.count() == 1


def test_what_nobody_settles_is_given_back_after_the_time_asked_for(asker: Api):
    make_limit(unit="in_flight", algorithm="concurrency", capacity=1)
    assert asker.post(DECIDE, {"calls": [CALL], "hold_seconds": 30}).status_code == 200
    charge = Charge.objects.get()
    assert charge.expires_at - charge.granted_at == timedelta(seconds=30)
    Charge.objects.update(expires_at=Now() - timedelta(seconds=1))
    assert reclaim_expired() == 1
    assert kinds(decide(asker)) == ["proceed"]


def test_a_repeated_request_gets_the_same_answer_and_is_charged_once(asker: Api):
    make_limit(unit="tokens", capacity=1000)
    body = {"calls": [{**CALL, "cost": 10}]}
    first, second = (asker.post(path, body, **{"Idempotency-Key": "k"}) for path in (DECIDE, f"{DECIDE}/"))
    assert (first.status_code, second.status_code) == (200, 200)
    assert first.json() == second.json()
    assert ("Idempotency-Replayed" in first.headers, second["Idempotency-Replayed"]) == (False, "true")
    assert used() == 10
    other = asker.post(DECIDE, {"calls": [{**CALL, "cost": 11}]}, **{"Idempotency-Key": "k"})
    assert error_of(other, 422)["code"] == "idempotency_key_reused"
    assert used() == 10
    elsewhere = Api(key_for("other", scopes=["decide"])).post(DECIDE, body, **{"Idempotency-Key": "k"})
    assert "Idempotency-Replayed" not in elsewhere.headers


def test_a_refused_request_leaves_its_key_free_and_a_bad_key_is_refused(asker: Api):
    make_limit()
    key = {"Idempotency-Key": "k"}
    assert asker.post(DECIDE, {"calls": [{**CALL, "cost": "x"}]}, **key).status_code == 422
    assert kinds(decide(asker, CALL, **key)) == ["proceed"]
    error = error_of(asker.post(DECIDE, {"calls": [CALL]}, **{"Idempotency-Key": "x" * 201}), 400)
    assert error["code"] == "invalid_idempotency_key"


def test_answers_are_kept_for_a_day(asker: Api):
    make_limit()
    decide(asker, CALL, **{"Idempotency-Key": "old"})
    decide(asker, CALL, **{"Idempotency-Key": "new"})
    DecideAnswer.objects.filter(idempotency_key="old").update(created_at=Now() - timedelta(hours=25))
    assert forget_answers() == 1
    assert [row.idempotency_key for row in DecideAnswer.objects.all()] == ["new"]


def send(port: int, secret: str, call: Mapping[str, Any], **headers: str) -> tuple[int, Any]:
    """Ask a web process, over a connection of its own."""
    server = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers |= {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
    server.request("POST", f"/api/v1{DECIDE}", json.dumps({"calls": [call]}), headers)
    response = server.getresponse()
    return response.status, json.loads(response.read())


def post(port: int, secret: str, *, service: str) -> tuple[int, str, bool | None]:
    """The status, what was decided or the error's code, and whether the answer was degraded."""
    status, body = send(port, secret, {**CALL, "service": service})
    if "error" in body:
        return status, body["error"]["code"], None
    return status, body["decisions"][0]["kind"], body["degraded"]


def asking(*, key: str | None = None, digest: str = "d", calls: int = 1) -> Asking:
    one = Call(Subject("sheets", "write", "acme"))
    return Asking("acme", (one,) * calls, key=key, digest=digest)


@pytest.mark.django_db(transaction=True)
def test_parallel_repetitions_in_one_process_are_charged_once():
    make_limit(capacity=1000)
    answers = run_together(32, lambda number: [ask(asking(key=str(turn))) for turn in range(5)])
    assert used() == 5
    assert sum(not answered.replayed for each in answers for answered in each) == 5
    assert len({json.dumps(answered.answer, sort_keys=True) for each in answers for answered in each}) == 1


@pytest.mark.django_db(transaction=True)
def test_parallel_repetitions_to_two_processes_are_charged_once():
    make_limit(unit="tokens", capacity=1_000_000)
    secret = key_for("acme", scopes=["decide"])
    ports = [free_port(), free_port()]
    with (
        manage("web", environ={"QUEUEOPS_PORT": str(ports[0])}) as one,
        manage("web", environ={"QUEUEOPS_PORT": str(ports[1])}) as other,
    ):
        one.wait_for_output("Listening on TCP address")
        other.wait_for_output("Listening on TCP address")

        def client(number: int) -> list[Any]:
            return [
                send(ports[number % 2], secret, {**CALL, "cost": turn + 1}, **{"Idempotency-Key": f"k{turn}"})
                for turn in range(6)
            ]

        answers = run_together(16, client)
    for turn in range(6):
        assert {status for status, _ in (each[turn] for each in answers)} == {200}
        assert len({json.dumps(body, sort_keys=True) for _, body in (each[turn] for each in answers)}) == 1
    assert used() == sum(range(1, 7))
    assert Charge.objects.count() == 6


@pytest.mark.django_db(transaction=True)
def test_one_key_for_two_different_requests_at_once_answers_one_and_refuses_the_other():
    make_limit(capacity=1000)

    def client(number: int) -> str:
        try:
            ask(asking(key="k", digest=str(number % 2), calls=1 + number % 2))
        except Exception as error:  # noqa: BLE001 (which one it is, is what is asserted)
            return getattr(error, "code", repr(error))
        return f"answered {number % 2}"

    outcomes = set(run_together(16, client))
    assert outcomes in ({"answered 0", "idempotency_key_reused"}, {"answered 1", "idempotency_key_reused"})
    assert used() == (1 if "answered 0" in outcomes else 2)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("fail_open", [True, False])
def test_a_counter_locked_for_too_long_lets_a_fail_open_limits_calls_through(fail_open):
    make_limit(fail_open=fail_open)
    Limit.objects.create(name="shadow", service="sheets", capacity=5, shadow=True)
    api = Api(key_for("acme", scopes=["decide"]))
    assert kinds(decide(api)) == ["proceed"]
    with psycopg.connect(database_url()) as holding:
        holding.execute("SELECT 1 FROM ratelimits_counter FOR UPDATE")
        response = api.post(DECIDE, {"calls": [CALL]}, **{"Idempotency-Key": "k"})
        if fail_open:
            assert response.json()["degraded"] is True
            assert kinds(response.json()["decisions"]) == ["proceed"]
        else:
            assert error_of(response, 503)["code"] == "limiter_unavailable"
            assert int(response["Retry-After"]) >= 1
    assert not DecideAnswer.objects.exists()
    assert kinds(decide(api)) == ["proceed"]
    assert [gauge.used for gauge in gauges() if gauge.limit == "hot"] == [2]


@pytest.mark.django_db(transaction=True)
def test_a_locked_counter_keeps_no_other_services_calls_waiting():
    make_limit(fail_open=True)
    make_limit(name="free", service="drive")
    ask(asking())
    with psycopg.connect(database_url()) as holding, ThreadPoolExecutor(1) as threads:
        holding.execute("SELECT 1 FROM ratelimits_counter FOR UPDATE")
        stuck = threads.submit(run_together, 1, lambda number: ask(asking()))
        wait_for(waits_for_a_lock, what="a call that waits for the counter")
        other = ask(Asking("acme", (Call(Subject("drive", "write", "acme")),)))
        assert not stuck.done()
        assert other.answer["degraded"] is False
        assert stuck.result(20)[0].answer["degraded"] is True


def waits_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return bool(cursor.fetchone()[0])


def test_in_an_outage_a_limit_that_this_process_has_not_read_lets_nothing_through(db):
    limit = make_limit(fail_open=True)
    ask(asking())
    outage.begin()
    assert ask(asking()).answer["degraded"] is True
    unread = Asking("acme", (Call(Subject("other", "write", "acme")),))
    with pytest.raises(LimiterUnavailable):
        ask(unread)
    limit.delete()
    outage.end()
    catalogue.forget()
    ask(asking())  # reads that there is none any more
    outage.begin()
    with pytest.raises(LimiterUnavailable):
        ask(asking())


def test_with_the_database_gone_a_known_keys_calls_are_answered_by_what_their_limits_say(server: EmbeddedServer):
    make_limit(name="open", service="open", fail_open=True, capacity=1000)
    make_limit(name="closed", service="closed", capacity=1000)
    known, unknown = (key_for("acme", scopes=["decide"]) for _ in range(2))
    port = free_port()
    with manage("web", environ={"QUEUEOPS_PORT": str(port)}) as web:
        web.wait_for_output("Listening on TCP address")
        assert post(port, known, service="open") == (200, "proceed", False)
        assert post(port, known, service="closed") == (200, "proceed", False)
        server.stop("immediate")
        assert post(port, known, service="open") == (200, "proceed", True)
        assert post(port, known, service="closed") == (503, "limiter_unavailable", None)
        assert post(port, unknown, service="open") == (503, "database_unavailable", None)
        together = run_together(8, lambda number: post(port, known, service="open"))
        assert together == [(200, "proceed", True)] * 8
        server.ensure_running()
        connection.close()
        wait_for(lambda: post(port, known, service="open") == (200, "proceed", False), what="counted calls again")
        assert post(port, known, service="closed") == (200, "proceed", False)
    assert {gauge.limit: gauge.used for gauge in gauges()} == {"open": 2, "closed": 2}


def test_with_the_database_gone_a_process_decides_by_the_limits_it_knows(server: EmbeddedServer):
    make_limit(fail_open=True)
    assert ask(asking()).answer["degraded"] is False
    server.stop("immediate")
    outage.end()
    assert ask(asking()).answer["degraded"] is True
    with pytest.raises(LimiterUnavailable):
        ask(Asking("acme", settlements=(Settlement("api:acme:x"),)))
