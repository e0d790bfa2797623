"""POST /api/v1/forecast/: what a batch would cost and when it would end; nothing is stored."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.conf import settings
from django.db import connection
from django.utils import timezone

from jobs.features.flow.models import SINCE_EVER
from jobs.models import BatchPace, Executor, FlowSample, PauseSwitch
from queueops.tenancy.models import Credential
from queueops.tenancy.secrets.credentials import seal
from ratelimits.limiter import estimates
from ratelimits.limits import catalogue
from ratelimits.models import Budget, CostEstimate, Limit, Price
from ratelimits.money import budgets, prices
from tests.api.conftest import SPEC, Api, error_of
from tests.factories import make_jobs, make_project
from tests.support.undone import undone

WORDS = "word " * 80  # 100 tokens
USER = UUID(int=0x4000_8000_0000_0000_0001)
MINUTE = 60.0


@pytest.fixture(autouse=True)
def nothing_known(db: None) -> Iterator[None]:
    Limit.objects.all().delete()
    for one in (catalogue, estimates, prices, budgets):
        one.forget()
    yield
    for one in (catalogue, estimates, prices, budgets):
        one.forget()


@pytest.fixture(autouse=True)
def credential(db: None) -> None:
    made = Credential.objects.create(name="key", service="openai", quota_project="acme", secret=seal({"api_key": "k"}))
    made.projects.add(make_project("acme"))


def question(**fields: Any) -> dict[str, Any]:
    payload = {"provider": "openai", "credential": "key", "model": "small", "prompt": WORDS, "max_output_tokens": 400}
    return {"kind": "llm.generate", "payload": payload, **fields}


def set_price(unit: str, amount: int, via: str = "live") -> None:
    Price.objects.create(
        provider="openai", model="small", unit=unit, via=via, amount=amount, valid_from="2026-01-01T00:00Z"
    )
    prices.forget()


def set_limit(unit: str, a_minute: int) -> None:
    Limit.objects.create(
        name=f"openai-{unit}",
        service="openai",
        scope="project",
        unit=unit,
        algorithm="token_bucket",
        capacity=1 if unit == "requests" else 500,
        refill_per_second=a_minute / 60,
    )
    catalogue.forget()


def run_executor(slots: int = 10, *, call_seconds: float = 2.0) -> None:
    Executor.objects.create(host="here", pid=1, process_started_at=0, cluster_pid=1, slots=slots)
    FlowSample.objects.create(
        span_seconds=SINCE_EVER, at=timezone.now(), service="openai", latencies=[4, 6], latency_ms=10_000 * call_seconds
    )


def learn(output: int, *, ratio: float = 1.0, project: str = "acme") -> None:
    CostEstimate.objects.create(
        id=f"{project}|openai|llm.generate|small",
        samples=[output] * 20,
        p90=output,
        ratios=[ratio] * 20,
        outputs=[output] * 18 + [2 * output] * 2,
        output_p90=output,
    )
    estimates.forget()


def forecast(api: Api, jobs: list[Any], **options: Any) -> dict[str, Any]:
    response = api.post("/forecast/", {"jobs": jobs, **options})
    assert response.status_code == 200, response.content
    told: dict[str, Any] = response.json()
    return told


def rows() -> dict[str, int]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
            " AND relname LIKE ANY(%s)",
            [["jobs_%", "ratelimits_%", "tenancy_%", "audit_%"]],
        )
        found = {}
        for (name,) in cursor.fetchall():
            cursor.execute(f'SELECT count(*) FROM "{name}"')  # noqa: S608 - a name from the catalogue
            [found[name]] = cursor.fetchone() or (0,)
    return found


def test_a_forecast_stores_nothing_whatever_it_was_asked(api: Api):
    before = rows()
    forecast(api, [question(idempotency_key="a", tags=["x"], user_id=str(USER), user_label="Ada"), {"kind": "no"}])
    response = api.send("POST", "/forecast/?name=x&tags=y", json.dumps(SPEC) + "\n{}", "application/x-ndjson")
    assert response.status_code == 200
    assert rows() == before


def test_tokens_are_told_as_known_as_expected_and_as_reserved(api: Api):
    told = forecast(api, [question()] * 5)
    assert told["learned"] is False
    assert told["tokens"]["input_tokens"] == {"known": 500, "expected": 500, "reserved": 500}
    assert told["tokens"]["output_tokens"] == {"known": 0, "expected": 2000, "reserved": 2000}
    learn(100, ratio=1.2)
    told = forecast(api, [question()] * 5)
    assert told["learned"] is True
    assert told["tokens"] == {
        "input_tokens": {"known": 500, "expected": 600, "reserved": 500},
        "output_tokens": {"known": 0, "expected": 550, "reserved": 500},
        "tokens": {"known": 500, "expected": 1150, "reserved": 1000},
    }


def test_what_other_projects_calls_take_is_neither_heeded_nor_shown(api: Api):
    before = forecast(api, [question()])
    learn(50_000, project="beta")
    told = forecast(api, [question()])
    assert (told["tokens"], told["learned"]) == (before["tokens"], False)


def test_the_price_of_work_of_which_too_little_is_known_is_a_range(api: Api):
    set_price("input_tokens", 2_000_000)
    set_price("output_tokens", 8_000_000)
    assert forecast(api, [question()])["live"]["price_range"] == {"at_least": 200, "at_most": 200 + 400 * 8}
    free = question()
    del free["payload"]["max_output_tokens"]
    assert forecast(api, [free])["live"]["price_range"] == {"at_least": 200, "at_most": None}
    Price.objects.update(model="gpt-4o")
    prices.forget()
    free["payload"]["model"] = "gpt-4o"
    told = forecast(api, [free])
    assert told["live"]["price_range"] == {"at_least": 200, "at_most": 200 + 16_384 * 8}
    assert told["tokens"]["output_tokens"]["reserved"] == 16_384
    Price.objects.update(model="small")
    prices.forget()
    learn(5_000)
    free["payload"]["model"] = "small"
    told = forecast(api, [free])
    assert (told["live"]["price_range"], told["live"]["price"]) == (None, 200 + 5_500 * 8)


def test_jobs_that_count_no_tokens_need_no_price(api: Api):
    told = forecast(api, [SPEC, SPEC])
    assert (told["tokens"], told["learned"], told["live"]["price"], told["missing_prices"]) == ({}, None, 0, [])
    assert told["jobs"]["by_model"] == [
        {"kind": "http.request", "service": "http:api.example.org", "model": None, "jobs": 2}
    ]


def test_the_price_is_that_of_the_tokens_expected(api: Api):
    set_price("input_tokens", 2_000_000)
    set_price("output_tokens", 8_000_000)
    learn(100)
    told = forecast(api, [question()] * 10)
    assert told["live"]["price"] == 10 * (100 * 2 + 110 * 8)
    assert told["currency"] == "USD"


@pytest.mark.parametrize("unit", ["input_tokens", "output_tokens", None])
def test_a_missing_price_is_told_and_never_taken_for_nothing(api: Api, unit: str | None):
    if unit:
        set_price(unit, 2_000_000)
    told = forecast(api, [question(), SPEC])
    assert told["live"]["price"] is None
    assert {"service": "openai", "model": "small", "via": "live"} in told["missing_prices"]


def test_budgets_that_would_not_suffice_are_told_with_what_becomes_of_the_jobs(api: Api):
    set_price("input_tokens", 2_000_000)
    set_price("output_tokens", 8_000_000)
    each = 100 * 2 + 400 * 8
    make = partial(Budget.objects.create, project_id="acme")
    make(name="all", amount=3 * each, period="total")
    make(name="each", amount=each, period="total", scope="each_user", policy="reject")
    make(name="other", amount=0, period="total", scope="user", user_id=uuid4())
    budgets.forget()
    mine = question(user_id=str(USER))
    assert forecast(api, [question(), mine])["budgets"] == []
    assert forecast(api, [question(), question(), mine, mine])["budgets"] == [
        {"budget": "all", "user_id": None, "policy": "wait", "needed": 4 * each, "left": 3 * each},
        {"budget": "each", "user_id": str(USER), "policy": "reject", "needed": 2 * each, "left": each},
    ]
    Price.objects.all().delete()
    prices.forget()
    [gap] = forecast(api, [question()])["budgets"]
    assert (gap["budget"], gap["needed"]) == ("all", None)


def test_a_cost_that_the_producer_gives_does_not_make_the_call_free(api: Api):
    set_price("input_tokens", 2_000_000)
    set_price("output_tokens", 8_000_000)
    assert forecast(api, [question(cost=7)])["live"]["price"] == 100 * 2 + 400 * 8


@pytest.mark.parametrize(("requests", "tokens", "binds"), [(60, 60_000, "requests"), (600, 3_000, "tokens")])
def test_the_limit_that_sets_the_pace_is_named_with_its_share(api: Api, requests: int, tokens: int, binds: str):
    set_limit("requests", requests)
    set_limit("tokens", tokens)
    learn(100)
    run_executor()
    told = forecast(api, [question()] * 60)
    first, second = told["binding"]
    assert (first["limit"], first["unit"]) == (f"openai-{binds}", binds)
    assert first["share"] > 0.9 > second["share"]
    wanted = {"requests": MINUTE, "tokens": 60 * 210 / 3_000 * MINUTE}[binds]
    assert told["live"]["seconds"] == pytest.approx(wanted, rel=0.1)
    assert "acme" in first["key"]


def test_what_waits_before_it_in_its_lane_goes_first_and_other_lanes_take_turns(api: Api):
    set_limit("requests", 60)
    run_executor()
    alone = forecast(api, [question(user_id=str(USER))] * 30)["live"]["seconds"]
    api.post("/batches/", {"jobs": [question(user_id=str(USER))] * 60})
    behind = forecast(api, [question(user_id=str(USER))] * 30)["live"]["seconds"]
    assert behind - alone == pytest.approx(MINUTE, abs=3)
    beside = forecast(api, [question(user_id=str(uuid4()))] * 30)
    assert beside["live"]["seconds"] - alone == pytest.approx(MINUTE / 2, abs=3)
    assert beside["binding"][0]["ahead"] == 30


def test_slots_set_the_pace_where_no_limit_does(api: Api):
    run_executor(slots=4, call_seconds=2.0)
    told = forecast(api, [question()] * 100)
    assert told["live"]["seconds"] == pytest.approx(50.0)
    assert told["binding"] == []


def test_what_can_go_by_batch_has_that_price_and_the_time_of_its_providers_batches(api: Api):
    for via, amount in (("live", 2_000_000), ("batch", 1_000_000)):
        set_price("input_tokens", amount, via)
        set_price("output_tokens", amount, via)
    run_executor()
    told = forecast(api, [question(via="batch"), question()])
    assert (told["jobs"]["by_batch"], told["live"]["price"], told["batch"]["price"]) == (1, 2000, 1000)
    assert told["batch"]["seconds"] == settings.QUEUEOPS.batch_window_seconds
    BatchPace.objects.create(service="openai", samples=[600.0], p95_seconds=600.0)
    assert forecast(api, [question()])["batch"]["seconds"] == 600
    mixed = forecast(api, [question(), SPEC])
    assert (mixed["batch"]["finish_at"], mixed["batch"]["price"]) == (None, 500)
    alone = forecast(api, [SPEC])["batch"]
    assert (alone["price"], alone["why"]) == (None, "no job of it can go by a batch of its provider")


def test_a_start_interval_and_a_schedule_are_waited_for(api: Api):
    run_executor()
    assert forecast(api, [question()] * 11, start_interval_seconds=30)["live"]["seconds"] == pytest.approx(302)
    assert forecast(api, [question(delay_seconds=500)])["live"]["seconds"] == pytest.approx(502)


def test_nobody_knows_the_end_of_what_is_paused_unserved_unmeasured_or_too_large(api: Api):
    assert forecast(api, [question()])["live"]["why"] == "no executor is running"
    run_executor()
    assert "measured" in forecast(api, [SPEC])["live"]["why"]
    PauseSwitch.objects.create(scope="service", key="openai", paused_by="user:1")
    live = forecast(api, [question()])["live"]
    assert (live["finish_at"], live["why"]) == (None, "service openai is paused")
    PauseSwitch.objects.all().delete()
    set_limit("tokens", 3_000)
    payload = {**question()["payload"], "prompt": WORDS * 10}
    told = forecast(api, [question(payload=payload)])
    assert (told["live"]["finish_at"], told["binding"][0]["seconds"]) == (None, None)
    assert "openai-tokens never lets such a call go" in told["live"]["why"]


GOOD = question(idempotency_key="good")
BODIES: dict[str, list[Any]] = {
    "good": [GOOD, SPEC],
    "kind": [{"kind": "no.such"}],
    "fields": [{**SPEC, "priorty": "low"}, {**SPEC, "delay_seconds": -1}, SPEC],
    "no object": [7, None, "x", [], SPEC],
    "payload": [{"kind": "http.request", "payload": {"method": "GET"}}, question(payload={"provider": "none"})],
    "credential": [question(payload={**question()["payload"], "credential": "theirs"}), SPEC],
    "policy": [{**SPEC, "retry_policy": "no such"}],
    "platform's": [{"kind": "queueops.webhook", "payload": {"delivery_id": str(uuid4())}}],
    "twice": [GOOD, GOOD],
    "twice in another order": [GOOD, {**GOOD, "payload": dict(reversed(GOOD["payload"].items()))}],
    "reused": [GOOD, {**SPEC, "idempotency_key": "good"}, SPEC],
    "another user's": [GOOD, {**GOOD, "user_id": str(USER)}],
    "used before": [{**SPEC, "idempotency_key": "before"}, question(idempotency_key="before")],
    "too large": [{"kind": "http.request", "payload": {**SPEC["payload"], "text": "x" * 2_050_000}}, SPEC],
    "NUL": [{**SPEC, "payload": {**SPEC["payload"], "text": "\x00"}}, SPEC],
    "waits for none of its": [{**SPEC, "after": [str(USER)]}, GOOD, {**GOOD, "after": [str(USER)]}],
    "empty": [],
}


@pytest.mark.parametrize("form", ["document", "lines"])
@pytest.mark.parametrize("partial", [False, True])
def test_what_a_forecast_would_reject_is_what_the_batch_rejects(api: Api, partial: bool, form: str):
    api.post("/jobs/", {**SPEC, "idempotency_key": "before"})

    def send(path: str, jobs: list[Any]) -> Any:
        if form == "document":
            return api.post(path, {"jobs": jobs, "partial": partial})
        text = "\n".join(map(json.dumps, jobs))
        return api.send("POST", f"{path}?partial={partial}", text, "application/x-ndjson")

    different = {}
    for name, jobs in BODIES.items():
        with undone():
            told, made = send("/forecast/", jobs), send("/batches/", jobs)
        foreseen, became = foretold(told), done(made)
        if (foreseen if told.status_code == 200 else (told.status_code, told.json())) != became:
            different[name] = (foreseen, became)
    assert different == {}


def foretold(answer: Any) -> Any:
    """What a forecast says of a submission, as `done` says it of the submission itself."""
    told = answer.json()
    if answer.status_code != 200:
        return None
    counts = (told["jobs"]["count"], told["jobs"]["duplicates"]) if told["accepted"] else ()
    return told["accepted"], *counts, told["rejected"]["jobs"], told["rejected"]["count"]


def done(answer: Any) -> Any:
    made = answer.json()
    if answer.status_code == 201:
        return True, made["accepted"], made["duplicates"], made["errors"], made["error_count"]
    details = made["error"].get("details") or {}
    if "errors" not in details:
        return answer.status_code, made
    return False, details["errors"], details["error_count"]


def test_a_hundred_rejected_jobs_are_listed_and_all_are_counted(api: Api):
    told = forecast(api, [{"kind": "no.such"}] * 150)
    assert (told["rejected"]["count"], len(told["rejected"]["jobs"]), told["accepted"]) == (150, 100, False)


def test_a_body_that_a_batch_refuses_is_refused_alike(api: Api, settings: Any):
    settings.QUEUEOPS = replace(settings.QUEUEOPS, max_batch_jobs=2)
    for body in ({"jobs": [SPEC] * 3}, {"jobs": [SPEC], "x": 1}, {"jobs": 3}):
        told, made = api.post("/forecast/", body), api.post("/batches/", body)
        assert told.status_code == made.status_code >= 400
        assert told.json() == made.json()
    project = make_project("acme")
    project.max_waiting_jobs = 1
    project.save()
    make_jobs(1)
    assert error_of(api.post("/forecast/", {"jobs": [SPEC]}), 429)["code"] == "queue_full"


CALLBACK = {"kind": "http.request", "payload": {"method": "POST", "url": "https://api.example.org/done"}}
OPTIONS: dict[str, tuple[dict[str, Any], int]] = {
    "unknown kind": ({"on_finish": {"kind": "no.such"}}, 422),
    "payload": ({"on_finish": {"kind": "http.request", "payload": {"method": "GET"}}}, 422),
    "time": ({"on_finish": {**CALLBACK, "delay_seconds": 5}}, 422),
    "no job": ({"on_finish": "x"}, 422),
    "unknown": ({"after": [str(USER)]}, 422),
    "good": ({"on_finish": CALLBACK}, 201),
}


def test_callback_and_dependencies_are_checked_as_the_batch_checks_them(api: Api):
    before = rows()
    for name, (options, status) in OPTIONS.items():
        with undone():
            told = api.post("/forecast/", {"jobs": [SPEC], **options})
            assert rows() == before
            made = api.post("/batches/", {"jobs": [SPEC], **options})
        assert made.status_code == status, name
        if status == 201:
            assert (told.status_code, told.json()["accepted"], told.json()["jobs"]["count"]) == (200, True, 1)
        else:
            assert (told.status_code, told.json()) == (status, made.json()), name


def test_the_room_that_a_callback_takes_is_foreseen(api: Api):
    project = make_project("acme")
    project.max_waiting_jobs = 1
    project.save()
    for path in ("/forecast/", "/batches/"):
        assert error_of(api.post(path, {"jobs": [SPEC], "on_finish": CALLBACK}), 429)["code"] == "queue_full"
    assert forecast(api, [SPEC])["accepted"]


def test_each_job_is_priced_by_the_length_of_its_own_input(api):
    set_price("input_tokens", 10**6)
    set_price("output_tokens", 0)
    Price.objects.create(
        provider="openai", model="small", unit="input_tokens", above_tokens=150, amount=10**7,
        valid_from="2026-01-01T00:00Z",
    )  # fmt: skip
    prices.forget()
    learn(10)
    long = question()
    long["payload"] = long["payload"] | {"prompt": WORDS * 2}
    assert forecast(api, [question()] * 3)["live"]["price"] == 3 * 100
    assert forecast(api, [question()] * 3 + [long])["live"]["price"] == 3 * 100 + 200 * 10
