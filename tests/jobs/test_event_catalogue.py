"""The page of events says what the log says; each failed call is in its job's log, once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, get_args

import pytest

from jobs.classify import Failure
from jobs.docs import events_page
from jobs.event_catalogue import BY_FIELD, FAILED_CALLS, OF_A_FAILED_CALL, OPERATIONS, TYPES
from jobs.models import DeadLetter, Job, JobEvent
from jobs.services.claim.deferrals import Operation
from jobs.services.finish.finish import record_outcomes
from jobs.services.finish.outcomes import Failed
from jobs.services.operate.job_actions import change_priority
from jobs.states import TRANSITIONS, EventType, Priority
from ratelimits.feedback import PushBack
from tests.factories import make_job
from tests.support.finishing import BROKEN, STEADY, started

JOBS = Path(__file__).resolve().parents[2] / "jobs"
GONE = Failure("sheet_missing", "ProviderError", "no sheet", outcome="answered", status=404, retry_after=3.0)
FULL = Failure("http_429", "ProviderError", "slow down", outcome="answered", status=429, push_back=PushBack())
CRASHED = Failure("handler_error", "LookupError", "no rate", outcome="unknown", details={"n": 1}, traceback="Traceback")


@pytest.mark.django_db
def test_each_failed_call_is_one_event_of_its_job_with_what_the_page_names():
    moves = {move for _, *moves in FAILED_CALLS for move in moves if move}
    for failure, move in ((BROKEN, "retry"), (GONE, "fail"), (FULL, "hand_back"), (CRASHED, "fail")):
        job = started()
        facts: Any = {"calls": [(503, 12)], "log": [(1, "info", "page 3")]}
        repeatable = move != "fail"
        outcome = Failed(job, "http", "moderate", repeatable=repeatable, failure=failure, duration_ms=5.0, **facts)
        record_outcomes([outcome], policies=STEADY)
        [event] = [one for one in JobEvent.objects.filter(job_id=job.id) if (one.data or {}).get("error_code")]
        assert (event.event_type, event.message) == (EventType.STATE_CHANGE, failure.message)
        assert event.to_status == TRANSITIONS[move].target
        assert move in moves
        assert event.data["attempt"] == 1
        assert event.data["error_code"] == failure.code
        assert event.data.keys() <= OF_A_FAILED_CALL.keys(), event.data
        assert DeadLetter.objects.filter(job_id=job.id).exists() is (move == "fail")
        Job.objects.filter(pk=job.id).update(held=True)  # no longer claimed


@pytest.mark.django_db
def test_other_events_are_told_by_what_the_page_names():
    job = make_job()
    change_priority([job.pk], priority=Priority.URGENT, actor="user:1", reason="tested")
    event = JobEvent.objects.filter(job_id=job.pk).latest("id")
    told = [name for name, (kind, _) in BY_FIELD.items() if kind == event.event_type and name in event.data]
    assert told == ["priority"]


def test_every_type_move_and_operation_of_the_log_is_on_the_page():
    written = "\n".join(
        path.read_text()
        for path in [*JOBS.rglob("sql/*.sql"), *JOBS.glob("services/**/*.py"), *JOBS.glob("features/**/*.py")]
    )
    operations = set(re.findall(r"'operation',\s*(?:CASE WHEN is_lost THEN )?'(\w+)'", written))
    operations |= (
        set(get_args(Operation))
        | set(re.findall(r"ELSE '(late_answer)'", written))
        | set(re.findall(r'"operation": "(\w+)"', written))
    )
    assert operations <= OPERATIONS.keys()
    assert {"lease_lost", "loop_held", "reroute", "schedule"} <= operations
    assert TYPES.keys() == set(EventType)
    page = events_page()
    for name in (*EventType.values, *TRANSITIONS, *OPERATIONS, *BY_FIELD, *OF_A_FAILED_CALL):
        assert f"`{name}`" in page
