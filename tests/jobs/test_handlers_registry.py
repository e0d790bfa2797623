"""Declaring and finding handlers."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from pydantic import BaseModel

from jobs.handlers import registry
from jobs.handlers.registry import (
    Coalesce,
    Cost,
    Done,
    JobCancelled,
    RunningJob,
    UnknownKind,
    all_handlers,
    close_handlers,
    find_handler,
    handler,
    load_handlers,
    on_close,
)
from jobs.models import new_id
from jobs.states import CallType
from tests.support.cases import every_case


class Numbers(BaseModel):
    count: int
    where: str = "here"


@pytest.fixture(autouse=True)
def own_registry(monkeypatch) -> None:
    for name in ("_handlers", "_aliases"):
        monkeypatch.setattr(registry, name, dict(getattr(registry, name)))
    monkeypatch.setattr(registry, "_closers", [])


def coalesce(**options: Any) -> Coalesce:
    return Coalesce(**options)


def declare(kind: str = "test.count", **options):
    @handler(**{"kind": kind, "service": "test", "payload": Numbers, **options})
    async def count(job: RunningJob[Numbers]) -> Done:
        """Count."""
        return Done(job.payload.count)

    return count


def test_a_handler_is_found_by_its_kind_with_safe_defaults():
    function = declare()
    found = find_handler("test.count")
    assert found.function is function
    assert (found.kind, found.description, found.is_async) == ("test.count", "Count.", True)
    assert found.timeout == timedelta(seconds=60)
    assert found.retry == "moderate"
    assert found.call_type == CallType.WRITE
    assert not found.is_repeatable(Numbers(count=1))


def test_a_synchronous_function_is_known_as_one():
    @handler(kind="test.sync", service="test", payload=Numbers)
    def run(job: RunningJob[Numbers]) -> None: ...

    assert not find_handler("test.sync").is_async


def test_a_former_name_leads_to_the_handler_and_is_no_kind_of_its_own():
    declare(aliases=("test.old", "older"))
    assert find_handler("test.old") is find_handler("older") is find_handler("test.count")
    kinds = [known.kind for known in all_handlers()]
    assert "test.count" in kinds
    assert "test.old" not in kinds
    assert kinds == sorted(kinds)


@pytest.mark.proves("S10")
def test_a_kind_that_nobody_registered_is_refused_with_the_known_ones():
    declare()
    with pytest.raises(UnknownKind, match=r"test\.unknown") as caught:
        find_handler("test.unknown")
    assert "test.count" in str(caught.value)
    assert (caught.value.code, caught.value.status) == ("unknown_kind", 422)


@every_case("kind", ["", "Upper", "a..b", ".a", "a.", "a b", "a-b", "a\n", "x" * 101, "é"])
def test_a_malformed_kind_stops_the_start(kind):
    with pytest.raises(ImproperlyConfigured, match="lower-case"):
        declare(kind)
    with pytest.raises(ImproperlyConfigured, match="lower-case"):
        declare("test.fine", aliases=(kind,))


@pytest.mark.parametrize("given", [20, 20.0, timedelta(seconds=20)])
def test_a_time_limit_is_a_timedelta_or_a_number_of_seconds(given):
    declare(timeout=given)
    assert find_handler("test.count").timeout == timedelta(seconds=20)


def test_a_call_type_may_be_given_by_its_name():
    declare(call_type="read")
    assert find_handler("test.count").call_type is CallType.READ


@every_case(
    ("option", "given", "rule"),
    [
        ("timeout", "20", "seconds"),
        ("timeout", True, "seconds"),
        ("timeout", None, "seconds"),
        ("timeout", 0, "above 0"),
        ("timeout", -1, "above 0"),
        ("timeout", float("nan"), "above 0"),
        ("timeout", 1e300, "at most 7 days"),
        ("timeout", timedelta(days=8), "at most 7 days"),
        ("call_type", "neither", "CallType.READ"),
        ("call_type", [], "CallType.READ"),
        ("payload", object(), "pydantic"),
        ("service", "", "64 characters"),
        ("service", "x" * 65, "64 characters"),
        ("service", None, "64 characters"),
        ("idempotent", "yes", "True, False"),
        ("sends_effect_key", 1, "True or False"),
        ("user_turns", "no", "True or False"),
        ("internal", None, "True or False"),
        ("credential", "google", "function of the payload"),
        ("model", "gpt", "function of the payload"),
        ("retry", None, "RetryPolicy"),
        ("retry", "x" * 41, "RetryPolicy"),
        ("cost", -1, "whole number"),
        ("cost", 1.5, "whole number"),
        ("cost", True, "whole number"),
        ("searchable", "order_id", "fields such as"),
        ("searchable", ("order id",), "fields such as"),
        ("shown_first", "note", "fields of the payload"),
        ("shown_first", ("no_such_field",), "fields of the payload"),
        ("coalesce", "spreadsheet", "Coalesce"),
        ("coalesce", coalesce(key="spreadsheet"), "function of the payload"),
        ("coalesce", Coalesce(key=str, max_items=0), "from 1"),
        ("coalesce", coalesce(key=str, max_bytes="2 MB"), "from 1"),
        ("aliases", "test.old", "tuple"),
        ("aliases", (7,), "lower-case"),
    ],
)
def test_a_wrong_option_stops_the_start_with_its_rule(option, given, rule):
    with pytest.raises(ImproperlyConfigured, match=rule) as caught:
        declare(**{option: given})
    assert option in str(caught.value) or option == "aliases"
    with pytest.raises(UnknownKind):
        find_handler("test.count")


def test_a_function_that_cannot_take_a_job_stops_the_start():
    def too_many(job: RunningJob[Numbers], what: str) -> None: ...

    async def a_generator(job: RunningJob[Numbers]):
        yield job

    functions: list[Any] = [too_many, a_generator, "text"]
    for function in functions:
        with pytest.raises(ImproperlyConfigured, match="function"):
            handler(kind="test.count", service="test", payload=Numbers)(function)


def test_two_handlers_of_one_kind_stop_the_start():
    declare("test.count", aliases=("test.old",))
    for kind in ("test.count", "test.old"):
        with pytest.raises(ImproperlyConfigured, match="two handlers"):
            declare(kind)
        with pytest.raises(ImproperlyConfigured, match="two handlers"):
            declare("test.other", aliases=(kind,))
    with pytest.raises(UnknownKind):
        find_handler("test.other")


def test_what_depends_on_the_payload_is_asked_of_it():
    declare(
        service=lambda numbers: numbers.where,
        cost=lambda numbers: numbers.count,
        idempotent=lambda numbers: numbers.count == 0,
    )
    found = find_handler("test.count")
    assert found.service_of(Numbers(count=3, where="there")) == "there"
    assert found.estimated_cost(Numbers(count=3)) == Cost(3)
    assert found.estimated_cost(Numbers(count=-3)) == Cost(0)
    assert found.is_repeatable(Numbers(count=0))
    assert not found.is_repeatable(Numbers(count=1))


def test_a_handler_that_sends_the_effect_key_may_be_repeated():
    declare(sends_effect_key=True)
    assert find_handler("test.count").is_repeatable(Numbers(count=1))


def test_our_own_and_the_applications_handlers_are_loaded():
    load_handlers()
    kinds = {known.kind for known in all_handlers()}
    assert {"http.request", "queueops.webhook"} <= kinds


def test_what_handlers_keep_open_is_closed():
    closed = []

    @on_close
    async def close() -> None:
        closed.append(True)

    asyncio.run(close_handlers())
    assert closed == [True]


def running(notes: list[tuple[int, str]]) -> RunningJob[Numbers]:
    return RunningJob(
        id=new_id(), payload=Numbers(count=1), project="acme", user_id=None, effect_key="k", attempt=1,
        report=lambda percent, message: notes.append((percent, message)),
    )  # fmt: skip


def test_progress_is_clipped_to_what_can_be_stored():
    notes: list[tuple[int, str]] = []
    job = running(notes)
    job.progress(-5)
    job.progress(50, "half")
    job.progress(700, "x" * 600)
    assert notes == [(0, ""), (50, "half"), (100, "x" * 500)]


def test_a_synchronous_handler_ends_where_it_asks_whether_it_is_cancelled():
    job = running([])
    job.raise_if_cancelled()
    job.cancelled.set()
    with pytest.raises(JobCancelled):
        job.raise_if_cancelled()
