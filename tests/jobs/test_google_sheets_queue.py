"""Jobs of `google_sheets.*` from submission to their end, with real executors and the sandbox as provider."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from jobs.models import DeadLetter, Job, JobEvent
from jobs.services.submit.submit import BatchRejected, submit_batch
from jobs.states import JobState
from jobs.testing import drain
from queueops.tenancy.models import Credential
from ratelimits.models import Counter, CounterFeedback, Limit
from tests.sandbox.providers import SheetsClient
from tests.support.processes import wait_for
from tests.support.saturation import SUBMITTER, Account, cell_write, limits_changed, open_accounts

pytestmark = pytest.mark.django_db

ACCOUNT = Account("p1", "u1")


@pytest.fixture
def sheets(sandbox):
    """A client of the spreadsheet `book`, without quotas; the project has a credential for it."""
    unlimited = dict.fromkeys(("reads_per_project", "writes_per_project", "reads_per_user", "writes_per_user"))
    sandbox.turn(google_sheets=unlimited)
    open_accounts([ACCOUNT], url=sandbox.url)
    limits_changed()
    yield SheetsClient(sandbox.url, "book")
    Limit.objects.all().delete()
    limits_changed()


def submit(*lines):
    batch = submit_batch(lines, project_id=ACCOUNT.project, actor=SUBMITTER)
    assert batch.error_count == 0, batch.errors


def job(kind, **payload):
    shared = {"credential": ACCOUNT.credential, "spreadsheet_id": "book"}
    return {"kind": f"google_sheets.{kind}", "payload": {**shared, **payload}}


def writes(*places):
    return [cell_write(ACCOUNT, spreadsheet="book", cell=place, value=place) for place in places]


def unsuccessful():
    return Job.objects.exclude(status=JobState.COMPLETED)


def test_poison_cells_fail_alone_and_nobody_pays_an_attempt_for_them(sandbox, sheets):
    sandbox.turn(google_sheets={"protected_ranges": ["B7", "A30"]})
    submit(*writes(*(f"{column}{row}" for column in "AB" for row in range(1, 41))))
    drain()
    assert sorted(unsuccessful().values_list("payload__range", flat=True)) == ["A30", "B7"]
    letters = DeadLetter.objects.values_list("error_code", "http_status")
    assert list(letters) == [("invalid_argument", 400)] * 2
    assert not Job.objects.filter(retry_count__gt=0).exists()
    assert len(sandbox.effects()) == 78
    assert set(sandbox.effects().values()) == {1}
    assert len(sandbox.calls(quota_kind="write")) < 20


def test_a_thousand_writes_to_a_tab_that_is_not_there_are_a_handful_of_calls(sandbox, sheets):
    submit(*writes(*(f"NOPE!A{row}" for row in range(1, 1001)), "A1"))
    drain()
    assert unsuccessful().count() == DeadLetter.objects.count() == 1000
    assert list(sandbox.effects()) == ["book/Sheet1!A1"]
    assert len(sandbox.calls(quota_kind="write")) <= 5


def test_waiting_writes_of_one_cell_leave_in_the_order_in_which_they_came(sandbox, sheets):
    values = [f"{number}" for number in range(30)]
    submit(*(job("values_update", range="A1", values=[[value]]) for value in values))
    drain()
    assert len(sandbox.calls(quota_kind="write")) == 1
    assert sheets.get("A1").json()["values"] == [[values[-1]]]


def test_what_was_submitted_with_a_credential_still_runs_when_the_project_is_taken_off_it(sandbox, sheets):
    submit(*writes("A1"))
    Credential.objects.get(name=ACCOUNT.credential).projects.clear()
    drain()
    assert list(sandbox.effects()) == ["book/Sheet1!A1"]
    with pytest.raises(BatchRejected) as refused:
        submit(*writes("A2"))
    assert [error["code"] for error in refused.value.details["errors"]] == ["credential_not_allowed"]


def test_jobs_of_a_deleted_credential_fail_and_others_go_on(sandbox, sheets):
    other = Account("p1", "u2")
    open_accounts([other], url=sandbox.url)
    submit(*writes("A1"), cell_write(other, spreadsheet="book", cell="A2", value="x"))
    Credential.objects.get(name=ACCOUNT.credential).delete()
    drain()
    assert list(DeadLetter.objects.values_list("error_code", flat=True)) == ["unknown_credential"]
    assert list(sandbox.effects()) == ["book/Sheet1!A2"]


def test_what_is_refused_without_an_index_is_found_by_halving(sandbox, sheets):
    submit(*(job("values_get", range=place) for place in ("A1", "A2", "AB1:AC2", "A3", "A4")))
    drain()
    [letter] = DeadLetter.objects.all()
    assert letter.payload["range"] == "AB1:AC2"
    assert unsuccessful().count() == 1
    assert not Job.objects.filter(retry_count__gt=0).exists()


def test_an_append_hidden_by_a_503_is_a_dead_letter_and_was_sent_once(sandbox, sheets):
    sandbox.turn(apply_then_503_rate=1)
    submit(job("values_append", range="A1", values=[["once"]]))
    drain()
    [letter] = DeadLetter.objects.all()
    assert (letter.error_code, letter.http_status) == ("outcome_unknown", 503)
    assert "whether it was carried out" in letter.remediation
    assert len(sandbox.calls()) == 1
    assert sheets.get("A1:A9").json()["values"] == [["once"]]


def test_eight_hundred_appends_are_two_calls_and_each_has_its_own_row(sandbox, sheets):
    submit(*(job("values_append", range="Sheet1", values=[[number]]) for number in range(800)))
    drain()
    assert len(sandbox.calls(quota_kind="write")) == 2
    written = sheets.get("A1:A800", valueRenderOption="UNFORMATTED_VALUE").json()["values"]
    places = dict(Job.objects.values_list("result__updatedRange", "payload__values"))
    assert places == {f"Sheet1!A{row}": [value] for row, value in enumerate(written, start=1)}
    assert sorted(value for [value] in written) == list(range(800))


def test_an_append_that_was_submitted_before_its_kind_coalesced_is_carried_out(sandbox, sheets):
    submit(job("values_append", range="Sheet1", values=[["a"]]))
    submit(job("values_append", range="Sheet1", values=[["b", "c"]], major_dimension="COLUMNS"))
    Job.objects.update(coalesce_key=None)
    drain()
    assert not unsuccessful().exists()
    assert sheets.get("A1:A9").json()["values"] == [["a"], ["b"], ["c"]]


def test_every_part_of_a_large_range_is_a_call_that_the_limit_counts(sandbox, sheets):
    Limit.objects.create(name="reads", service="google-sheets", call_type="read", capacity=100, window_seconds=60)
    limits_changed()
    sheets.update("A1:A50", [[str(row)] for row in range(50)])
    sandbox.clear_ledger()
    submit(job("values_get", range="A:A", page_rows=400))
    drain()
    [done] = Job.objects.all()
    assert done.status == JobState.COMPLETED
    assert done.result is not None
    assert done.result["values"] == [[str(row)] for row in range(50)]
    assert done.retry_count == 0
    shown = JobEvent.objects.filter(event_type="progress").values_list("progress_percent", "message")
    assert list(shown) == [(40, "400 of 1,000 rows are read"), (80, "800 of 1,000 rows are read")]
    assert len(sandbox.calls(quota_kind="read")) == 4
    state = Counter.objects.get(limit__name="reads").state
    assert sum(state["costs"]) == 4_000_000


def test_a_429_costs_no_attempt_and_slows_only_the_user_it_names(sandbox, sheets):
    shared = {"service": "google-sheets", "call_type": "write", "window_seconds": 1}
    Limit.objects.create(**shared, name="user", scope="project_user", capacity=60)
    Limit.objects.create(**shared, name="project", scope="project", capacity=60)
    limits_changed()
    sandbox.turn(google_sheets={"writes_per_user": 1, "window_seconds": 3600, "window_mode": "sliding"})
    assert sheets.update("Z1", [["before"]]).status == 200
    submit(*writes("A1", "A2", "A3"))
    with ThreadPoolExecutor(1) as beside:

        def let_go_once_refused():
            wait_for(lambda: sandbox.calls(status=429), what="a refusal")
            sandbox.turn(google_sheets={"writes_per_user": None})

        let_go = beside.submit(let_go_once_refused)
        drain()
        let_go.result(60)
    assert not unsuccessful().exists()
    assert not Job.objects.filter(retry_count__gt=0).exists()
    assert sandbox.calls(status=429)
    pressures = dict(Counter.objects.values_list("limit__name", "pressure"))
    assert pressures["user"] < 1
    assert pressures["project"] == 1
    assert CounterFeedback.objects.filter(counter__contains="user:u1").exists()


def test_a_service_account_that_may_not_see_the_spreadsheet_is_told_so(sandbox, sheets):
    sandbox.turn(google_sheets={"forbidden_spreadsheets": ["book"]})
    submit(*writes("A1", "A2"))
    drain()
    letters = DeadLetter.objects.values_list("http_status", "error_message")
    assert list(letters) == [(403, "Google Sheets answered 403: The caller does not have permission")] * 2
