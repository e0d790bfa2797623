"""What handler authors test with."""

import asyncio
from datetime import timedelta

import pytest
from django.utils import timezone
from pydantic import ValidationError

from jobs.handlers.errors import ProviderError
from jobs.handlers.registry import UnknownKind
from jobs.states import JobState
from jobs.testing import StillUnfinished, arun_handler, drain, run_handler
from tests.factories import make_job
from tests.support.sample_app.handlers import greet
from tests.support.sheets_jobs import credential_of


def test_a_handler_runs_without_a_database():
    notes = []
    done = run_handler("sample.greet", {"name": "Ada"}, on_progress=lambda percent, text: notes.append((percent, text)))
    assert done.result == {"greeting": "Hello Ada"}
    assert notes == [(50, "thinking")]


def test_a_payload_may_be_given_as_its_model():
    assert run_handler("sample.greet", greet.Greeting(name="Ada")).result == {"greeting": "Hello Ada"}


def test_a_synchronous_handler_may_return_nothing():
    assert run_handler("sample.greet_slowly", {"name": "Ada"}).result is None


def test_a_handler_runs_on_a_loop_that_is_there():
    assert asyncio.run(arun_handler("sample.greet", {"name": "Ada"})).result == {"greeting": "Hello Ada"}


def test_what_the_handler_raises_comes_out():
    with pytest.raises(ProviderError, match="there is nobody"):
        run_handler("sample.greet", {"name": "nobody"})


def test_a_payload_that_does_not_fit_is_refused_as_at_submission():
    with pytest.raises(ValidationError):
        run_handler("sample.greet", {"name": 7})


def test_a_kind_that_nobody_registered_is_named():
    with pytest.raises(UnknownKind, match=r"sample\.wave"):
        run_handler("sample.wave", {})


def test_a_handler_that_goes_on_runs_until_it_is_done(sandbox):
    payload = {"spreadsheet_id": "s1", "range": "A1:A40", "page_rows": 10}
    done = run_handler("google_sheets.values_get", payload, credential=credential_of(sandbox.url))
    assert done.result == {"range": "A1:A40", "majorDimension": "ROWS", "values": []}
    assert len(sandbox.calls()) == 4


def test_a_handler_that_coalesces_gets_a_group_of_one(sandbox):
    payload = {"spreadsheet_id": "s1", "range": "A1", "values": [["x"]]}
    done = run_handler("google_sheets.values_update", payload, credential=credential_of(sandbox.url))
    assert done.result["updatedCells"] == 1
    sandbox.turn(error_rates={"503": 1})
    requests = {"spreadsheet_id": "s1", "requests": [{"addSheet": {}}]}
    with pytest.raises(ProviderError, match="may have been applied"):
        run_handler("google_sheets.batch_update", requests, credential=credential_of(sandbox.url))


@pytest.mark.django_db
def test_a_drain_leaves_what_is_wished_for_later_and_not_what_a_limit_is_foreseen_to_hold_that_long():
    later = timezone.now() + timedelta(hours=1)
    make_job(scheduled_at=later)
    drain(seconds=0)
    make_job(status=JobState.RATE_LIMITED, scheduled_at=later, service="test", lane="", kind="sample.greet")
    with pytest.raises(StillUnfinished, match=r"^1 jobs .* sample\.greet"):
        drain(seconds=0)
