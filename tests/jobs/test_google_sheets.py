"""The kinds `google_sheets.*` against the sandbox over real HTTP, judged by its ledger."""

import asyncio
import gzip
import json
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import web
from cachetools import TTLCache

from jobs.classify import failure_of, is_retryable
from jobs.handlers.errors import ProviderError
from jobs.handlers.google import grids as google_sheets_grids
from jobs.handlers.google import reading as google_sheets_reading
from jobs.handlers.google import sheets_api as google_sheets_api
from jobs.handlers.google.group import owner_of, places_of, with_unreadable
from jobs.handlers.registry import Bisect, Continue, Done, Poison, find_handler
from tests.sandbox.providers import SheetsClient
from tests.support.cases import every_case
from tests.support.http_server import raw_server, serving
from tests.support.sheets_jobs import TOKEN, attempt, closing, credential_of, run, run_to_the_end

UPDATE, APPEND = "google_sheets.values_update", "google_sheets.values_append"
GET, BATCH = "google_sheets.values_get", "google_sheets.batch_update"


@pytest.fixture
def sheets(sandbox):
    """A client of the spreadsheet s1, without quotas."""
    unlimited = dict.fromkeys(("reads_per_project", "writes_per_project", "reads_per_user", "writes_per_user"))
    sandbox.turn(google_sheets=unlimited)
    return SheetsClient(sandbox.url)


def cell(place, value="x", **fields):
    return {"range": place, "values": [[value]], **fields}


def paths(sandbox):
    return [call["path"] for call in sandbox.calls()]


def failing(kind, *payloads, url, expected=ProviderError):
    with pytest.raises(expected) as failed:
        run(kind, *payloads, url=url)
    return failed.value


# values_update


def test_writes_of_several_jobs_are_one_call_with_an_answer_each(sandbox, sheets):
    answers = run(
        UPDATE, cell("A1", "a"), {"range": "B2:C2", "values": [[1, True]]}, cell("Sheet1!D4", None), url=sandbox.url
    )
    assert [(answer.result["updatedRange"], answer.result["updatedCells"]) for answer in answers] == [
        ("Sheet1!A1", 1),
        ("Sheet1!B2:C2", 2),
        ("Sheet1!D4", 0),
    ]
    assert paths(sandbox) == ["/v4/spreadsheets/s1/values:batchUpdate"]
    assert sheets.get("A1:C2").json()["values"] == [["a"], ["", "1", "TRUE"]]


def test_a_thousand_cells_are_two_units_of_quota(sandbox, sheets):
    for start in (0, 500):
        run(UPDATE, *(cell(f"A{number + 1}", number) for number in range(start, start + 500)), url=sandbox.url)
    assert len(sandbox.calls(quota_kind="write")) == 2
    values = sheets.get("A1:A1000", valueRenderOption="UNFORMATTED_VALUE").json()["values"]
    assert values == [[number] for number in range(1000)]


def test_writes_of_the_same_range_are_applied_in_order(sandbox, sheets):
    run(UPDATE, *(cell("A1", value) for value in ("first", "second", "last")), url=sandbox.url)
    assert len(sandbox.calls(quota_kind="write")) == 1
    assert sheets.get("A1").json()["values"] == [["last"]]


def test_columns_and_typed_values_are_written_as_asked(sandbox, sheets):
    run(UPDATE, {"range": "A1:A2", "values": [["1", "2"]], "major_dimension": "COLUMNS"}, url=sandbox.url)
    run(UPDATE, cell("B1", "12", value_input_option="USER_ENTERED"), url=sandbox.url)
    read = sheets.get("A1:B2", valueRenderOption="UNFORMATTED_VALUE").json()
    assert read["values"] == [["1", 12], ["2"]]


def test_one_bad_range_is_cut_out_by_its_index(sandbox, sheets):
    poison = failing(UPDATE, cell("A1"), cell("NOPE!A5:F15"), cell("A2"), url=sandbox.url, expected=Poison)
    [(place, error)] = poison.errors.items()
    assert place == 1
    assert (error.status, error.code, error.outcome) == (400, "invalid_argument", "answered")
    assert error.message == "Google Sheets answered 400: Invalid data[0]: Unable to parse range: NOPE!A5:F15"
    assert sandbox.effects() == {}


def test_poison_among_many_fails_alone(sandbox, sheets):
    sandbox.turn(google_sheets={"protected_ranges": ["C7", "D40"]})
    left = [cell(f"{column}{row}", f"{column}{row}") for column in "ABCD" for row in range(1, 51)]
    dead, calls = [], 0
    while True:
        calls += 1
        try:
            answers = run(UPDATE, *left, url=sandbox.url)
        except Poison as poison:
            dead += [left.pop(place)["range"] for place in poison.errors]
        else:
            break
    assert (dead, calls) == (["C7", "D40"], 3)
    assert all(isinstance(answer, Done) for answer in answers)
    assert len(sandbox.effects()) == 198


def test_all_writes_to_a_tab_that_is_not_there_are_cut_out_with_the_first(sandbox, sheets):
    jobs = [cell(place) for place in ("A1", "NOPE!A1", "Sheet1!A2", "NOPE!A2:B9", "NOPE", "NOPE!A0", "'NOPE'!A3")]
    poison = failing(UPDATE, *jobs, url=sandbox.url, expected=Poison)
    assert {place: error.message for place, error in poison.errors.items()} == {
        1: "Google Sheets answered 400: Invalid data[0]: Unable to parse range: NOPE!A1",
        3: "Google Sheets answered 400: Invalid data[0]: Unable to parse range: NOPE!A1 "
        "(said of another job of the call, which names the same sheet)",
    }


@every_case(
    ("refused", "beside", "cut"),
    [
        ("NOPE", "NOPE!A2", True),
        ("NOPE", "NOPE", True),
        ("NOPE!A1", "NOPE", False),  # a named range, perhaps
        ("Sheet1!A0", "Sheet1!A1", False),  # the sheet is there
        ("Sheet1!A:2", "Sheet1!A1", False),
        ("My-tab!A1", "'My-tab'!A1", False),  # unreadable for want of quotes, perhaps
        ("nope!A1", "NOPE!A1", False),
        ("A0", "A0", True),
        ("A0", "A1", False),
    ],
)
def test_only_jobs_that_must_fail_too_are_cut_out_with_one_whose_range_is_unreadable(refused, beside, cut):
    alike = with_unreadable([refused, beside])
    assert (1 in alike(f"Unable to parse range: {refused}", 0)) == cut
    assert not alike("Requested writing within range [A1], but tried writing to column [B]", 0)


def test_alone_the_bad_job_gets_its_own_error(sandbox, sheets):
    error = failing(UPDATE, cell("NOPE!A1"), url=sandbox.url)
    assert (error.status, error.details["status"]) == (400, "INVALID_ARGUMENT")
    assert not is_retryable(failure_of(error), repeatable=True)


def test_a_refusal_that_names_no_index_is_halved_until_one_is_left():
    async def refuse(request):
        return web.json_response({"error": {"code": 400, "message": "No.", "status": "INVALID_ARGUMENT"}}, status=400)

    async def scenario(count):
        async with serving(refuse) as url:
            return await closing(attempt(UPDATE, [cell("A1")] * count, credential_of(url)))

    with pytest.raises(Bisect):
        asyncio.run(scenario(2))
    with pytest.raises(ProviderError, match=r"400: No\."):
        asyncio.run(scenario(1))


def test_an_index_that_no_job_has_halves_too():
    async def refuse(request):
        return web.json_response({"error": {"code": 400, "message": "Invalid data[9]: x"}}, status=400)

    async def scenario():
        async with serving(refuse) as url:
            return await closing(attempt(UPDATE, [cell("A1")] * 2, credential_of(url)))

    with pytest.raises(Bisect):
        asyncio.run(scenario())


def test_a_write_to_a_fixed_range_hidden_by_a_503_is_tried_again(sandbox, sheets):
    sandbox.turn(apply_then_503_rate=1)
    error = failing(UPDATE, cell("A1"), cell("A2"), url=sandbox.url)
    assert (error.status, error.code) == (503, "unavailable")
    assert is_retryable(failure_of(error), repeatable=find_handler(UPDATE).is_repeatable(None))
    sandbox.turn(apply_then_503_rate=0)
    run(UPDATE, cell("A1"), cell("A2"), url=sandbox.url)
    assert sheets.get("A1:A2").json()["values"] == [["x"], ["x"]]


# Refusals


def test_a_429_says_which_quota_had_no_room(sandbox):
    sandbox.turn(google_sheets={"writes_per_user": 0, "window_seconds": 3600})
    error = failing(UPDATE, cell("A1"), cell("A2"), url=sandbox.url)
    assert (error.status, error.code, error.outcome) == (429, "resource_exhausted", "answered")
    assert error.details["reason"] == "RATE_LIMIT_EXCEEDED"
    [violation] = error.push_back.violations
    assert (violation.name, violation.scope) == ("WriteRequestsPerMinutePerUser", "user")


def test_a_429_that_is_a_web_page_is_a_push_back_of_nobody_knows_what(sandbox):
    sandbox.turn(google_sheets={"writes_per_user": 0}, html_429=True, retry_after="seconds")
    error = failing(UPDATE, cell("A1"), url=sandbox.url)
    assert (error.status, error.code) == (429, "http_429")
    assert error.push_back.violations == ()
    assert error.retry_after == error.push_back.retry_after > 0


@pytest.mark.parametrize(
    ("knobs", "refusal"),
    [
        ({"forbidden_spreadsheets": ["s1"]}, (403, "permission_denied", "The caller does not have permission")),
        ({"disabled_projects": ["p1"]}, (403, "permission_denied", "has not been used in project p1")),
        ({"spreadsheets": ["other"]}, (404, "not_found", "Requested entity was not found.")),
    ],
)
def test_what_may_not_be_seen_or_is_missing_is_said_in_its_words(sandbox, knobs, refusal):
    sandbox.turn(google_sheets=knobs)
    for kind, payload in (
        (UPDATE, cell("A1")),
        (APPEND, cell("A1")),
        (GET, {"range": "A1"}),
        (BATCH, {"requests": [ADD]}),
    ):
        error = failing(kind, payload, url=sandbox.url)
        assert (error.status, error.code, error.outcome) == (*refusal[:2], "answered")
        assert refusal[2] in error.message
        assert not is_retryable(failure_of(error), repeatable=True)


def test_a_disabled_service_is_told_apart_by_its_reason(sandbox):
    sandbox.turn(google_sheets={"disabled_projects": ["p1"]})
    assert failing(GET, {"range": "A1"}, url=sandbox.url).details["reason"] == "SERVICE_DISABLED"


def test_no_answer_shows_the_token():
    async def echo(request):
        token = request.headers["Authorization"]
        body = {"error": {"code": 403, "message": f"{token} may not", "status": "PERMISSION_DENIED"}}
        return web.json_response(body, status=403)

    async def scenario():
        async with serving(echo) as url:
            return await closing(attempt(UPDATE, [cell("A1")], credential_of(url)))

    with pytest.raises(ProviderError) as failed:
        asyncio.run(scenario())
    assert TOKEN not in failed.value.message + json.dumps(failed.value.details)


def test_a_job_without_a_credential_or_with_another_services_sends_nothing(sandbox):
    with pytest.raises(ProviderError) as failed:
        asyncio.run(closing(attempt(UPDATE, [cell("A1")], None)))
    assert (failed.value.code, failed.value.outcome) == ("credential_missing", "refused")
    other = credential_of(sandbox.url).__class__(name="k", service="gemini", secret={"access_token": "x"})
    with pytest.raises(ProviderError) as failed:
        asyncio.run(closing(attempt(UPDATE, [cell("A1")], other)))
    assert failed.value.code == "credential_unusable"
    assert sandbox.calls() == []


def test_an_answer_that_is_no_json_leaves_the_outcome_unknown():
    async def scenario():
        async with raw_server(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnope") as (url, _):
            return await closing(attempt(UPDATE, [cell("A1")], credential_of(url)))

    with pytest.raises(ProviderError) as failed:
        asyncio.run(scenario())
    assert (failed.value.code, failed.value.outcome) == ("malformed_answer", "unknown")


def test_answers_come_compressed_and_trimmed_by_a_field_mask():
    seen = []

    async def answer(request):
        seen.append((request.headers["User-Agent"], request.headers["Accept-Encoding"], request.query["fields"]))
        body = gzip.compress(json.dumps({"responses": [{"updatedRange": "Sheet1!A1"}]}).encode())
        return web.Response(body=body, headers={"Content-Encoding": "gzip", "Content-Type": "application/json"})

    async def scenario():
        async with serving(answer) as url:
            return await closing(attempt(UPDATE, [cell("A1")], credential_of(url)))

    [done] = asyncio.run(scenario())
    assert done.result == {"updatedRange": "Sheet1!A1"}
    [(agent, encodings, mask)] = seen
    assert "gzip" in agent
    assert "gzip" in encodings
    assert mask == "responses(updatedRange,updatedRows,updatedColumns,updatedCells)"


# values_append


def test_rows_are_added_below_the_table(sandbox, sheets):
    run(APPEND, {"range": "Sheet1!A1", "values": [["a"], ["b"]]}, url=sandbox.url)
    [done] = run(
        APPEND,
        {"range": "Sheet1!A1", "values": [["c", "d"]], "insert_data_option": "INSERT_ROWS"},
        url=sandbox.url,
    )
    assert done.result == {
        "tableRange": "Sheet1!A1:A2",
        "updatedRange": "Sheet1!A3:B3",
        "updatedRows": 1,
        "updatedColumns": 2,
        "updatedCells": 2,
    }


def test_appends_leave_as_one_call_and_each_is_told_the_place_of_its_rows(sandbox, sheets):
    run(APPEND, {"range": "Sheet1!B1", "values": [["head"]]}, url=sandbox.url)
    sandbox.clear_ledger()
    rows: list[list[list[Any]]] = [[["a"]], [["b", None, "c"], ["d"]], [["e", "f"]]]
    answers = run(APPEND, *({"range": "Sheet1!B1", "values": values} for values in rows), url=sandbox.url)
    assert [answer.result for answer in answers] == [
        {"tableRange": "Sheet1!B1", **place}
        for place in (
            {"updatedRange": "Sheet1!B2", "updatedRows": 1, "updatedColumns": 1, "updatedCells": 1},
            {"updatedRange": "Sheet1!B3:D4", "updatedRows": 2, "updatedColumns": 3, "updatedCells": 3},
            {"updatedRange": "Sheet1!B5:C5", "updatedRows": 1, "updatedColumns": 2, "updatedCells": 2},
        )
    ]
    assert len(sandbox.calls(quota_kind="write")) == 1
    assert sheets.get("B1:D5").json()["values"] == [["head"], ["a"], ["b", "", "c"], ["d"], ["e", "f"]]


def test_appends_to_a_tab_that_is_not_there_fail_together_without_a_search_for_the_guilty(sandbox, sheets):
    error = failing(APPEND, *(cell("NOPE!A1") for _ in range(5)), url=sandbox.url)
    assert (error.status, error.code) == (400, "invalid_argument")
    assert len(sandbox.calls()) == 1


def test_an_append_that_is_refused_for_another_reason_is_halved(sandbox, sheets):
    sandbox.turn(google_sheets={"protected_ranges": ["A3"]})
    failing(APPEND, *(cell("A1") for _ in range(5)), url=sandbox.url, expected=Bisect)
    assert sandbox.effects() == {}


def test_all_of_a_calls_appends_are_of_unknown_outcome(sandbox, sheets):
    sandbox.turn(apply_then_503_rate=1)
    error = failing(APPEND, cell("A1"), cell("A1"), url=sandbox.url)
    assert (error.code, error.outcome) == ("outcome_unknown", "unknown")
    assert sandbox.effects() == {"s1/Sheet1!A1:A2": 1}


@pytest.mark.parametrize("said", [None, 7, "Sheet1!A2:A9", "Sheet1!A:B", "?"])
def test_an_answer_that_does_not_say_where_rows_went_gives_no_place(said):
    assert places_of({"updatedRange": said, "updatedRows": 2}, [[["a"]], [["b"]]]) == [{}, {}]


@pytest.mark.parametrize("status", [500, 503, 504])
def test_an_append_that_may_have_been_applied_is_never_repeated(sandbox, sheets, status):
    sandbox.turn(**({"apply_then_503_rate": 1} if status == 503 else {"error_rates": {str(status): 1}}))
    error = failing(APPEND, cell("A1"), url=sandbox.url)
    assert (error.status, error.code, error.outcome) == (status, "outcome_unknown", "unknown")
    assert "may have been applied" in error.message
    failure = failure_of(error)
    assert not is_retryable(failure, repeatable=find_handler(APPEND).is_repeatable(None))
    assert "whether it was carried out" in failure.remedy
    assert sandbox.effects() == ({"s1/Sheet1!A1": 1} if status == 503 else {})


def test_an_append_whose_connection_broke_is_of_unknown_outcome(sandbox):
    sandbox.turn(outage={"seconds": 60, "mode": "close"})
    error = failing(APPEND, cell("A1"), url=sandbox.url)
    assert (error.status, error.code, error.outcome) == (None, "outcome_unknown", "unknown")
    assert error.details["provider_code"] == "connection_broken"


def test_an_append_refused_for_its_quota_may_be_sent_again(sandbox):
    sandbox.turn(google_sheets={"writes_per_user": 0})
    error = failing(APPEND, cell("A1"), url=sandbox.url)
    assert (error.status, error.outcome) == (429, "answered")
    assert is_retryable(failure_of(error), repeatable=False)


def test_a_range_with_a_slash_and_letters_of_every_kind_reaches_the_provider(sandbox, sheets):
    title = "Über/Ü? #1 100%"
    sheets.batch({"addSheet": {"properties": {"title": title}}})
    run(APPEND, cell(f"'{title}'!A1"), url=sandbox.url)
    [done] = run(GET, {"range": f"'{title}'!A1:B2"}, url=sandbox.url)
    assert done.result["values"] == [["x"]]


# batch_update


ADD = {"addSheet": {"properties": {"title": "New"}}}
TAKEN = {"addSheet": {"properties": {"title": "Sheet1"}}}
WIDER = {"appendDimension": {"sheetId": 0, "dimension": "COLUMNS", "length": 1}}


def test_replies_are_split_by_how_many_requests_each_job_has(sandbox, sheets):
    answers = run(
        BATCH, {"requests": [WIDER, ADD]}, {"requests": [WIDER]}, {"requests": [WIDER, WIDER]}, url=sandbox.url
    )
    assert [[list(reply) for reply in answer.result["replies"]] for answer in answers] == [
        [[], ["addSheet"]],
        [[]],
        [[], []],
    ]
    assert paths(sandbox) == ["/v4/spreadsheets/s1:batchUpdate"]


def test_the_job_with_the_invalid_subrequest_is_cut_out_with_its_own_index(sandbox, sheets):
    jobs = [{"requests": [WIDER, ADD]}, {"requests": [WIDER, TAKEN]}, {"requests": [WIDER]}]
    poison = failing(BATCH, *jobs, url=sandbox.url, expected=Poison)
    [(place, error)] = poison.errors.items()
    assert place == 1
    assert 'Invalid requests[1].addSheet: A sheet with the name "Sheet1"' in error.message
    assert error.details["provider_message"].startswith("Invalid requests[1].addSheet")
    unknown = [{"requests": [WIDER]}, {"requests": [{"noSuchKind": {}}]}]
    poison = failing(BATCH, *unknown, url=sandbox.url, expected=Poison)
    assert ["'requests[0]'" in poison.errors[place].message for place in poison.errors] == [True]
    assert set(poison.errors) == {1}


def test_all_batches_for_a_tab_that_is_not_there_are_cut_out_with_the_first(sandbox, sheets):
    nowhere = {"appendDimension": {"sheetId": 77, "dimension": "COLUMNS", "length": 1}}
    jobs = [{"requests": [WIDER]}, {"requests": [WIDER, nowhere]}, {"requests": [WIDER]}, {"requests": [nowhere]}]
    poison = failing(BATCH, *jobs, url=sandbox.url, expected=Poison)
    assert set(poison.errors) == {1, 3}
    assert "No grid with id: 77" in poison.errors[3].message


def test_a_call_that_adds_or_deletes_sheets_cuts_out_the_named_job_alone(sandbox, sheets):
    later = {"addSheet": {"properties": {"title": "Later", "sheetId": 77}}}
    there = {"appendDimension": {"sheetId": 77, "dimension": "COLUMNS", "length": 1}}
    jobs = [{"requests": [there]}, {"requests": [later]}, {"requests": [there]}]
    poison = failing(BATCH, *jobs, url=sandbox.url, expected=Poison)
    assert set(poison.errors) == {0}


def test_a_mask_trims_each_reply(sandbox, sheets):
    [done] = run(BATCH, {"requests": [ADD], "fields": "addSheet.properties.title"}, url=sandbox.url)
    assert done.result == {"replies": [{"addSheet": {"properties": {"title": "New"}}}]}


def test_a_batch_hidden_by_a_503_is_repeated_only_where_its_payload_says_so(sandbox, sheets):
    sandbox.turn(apply_then_503_rate=1)
    handler = find_handler(BATCH)
    answers = run(BATCH, {"requests": [ADD]}, {"requests": [WIDER]}, url=sandbox.url)
    assert [(answer.code, answer.outcome) for answer in answers] == [("outcome_unknown", "unknown")] * 2
    error = failing(BATCH, {"requests": [WIDER], "idempotent": True}, url=sandbox.url)
    assert (error.code, error.outcome) == ("unavailable", "answered")
    repeatable = handler.schema.validate_python({"spreadsheet_id": "s", "requests": [ADD], "idempotent": True})
    assert handler.is_repeatable(repeatable)


@every_case(
    ("place", "owner"), [(0, (0, 0)), (1, (0, 1)), (2, (1, 0)), (3, (2, 0)), (5, (2, 2)), (6, None), (-1, None)]
)
def test_a_subrequest_belongs_to_the_job_that_brought_it(place, owner):
    assert owner_of(place, [2, 1, 3]) == owner


# values_get


def filled(sheets, rows, columns="A"):
    values = [[f"{row}"] * (ord(columns) - 64) for row in range(1, rows + 1)]
    sheets.update(f"A1:{columns}{rows}", values)
    return values


def test_reads_of_several_jobs_are_one_call_and_equal_ranges_are_asked_for_once(sandbox, sheets):
    filled(sheets, 3, "B")
    sandbox.clear_ledger()
    answers = run(GET, {"range": "A1:B2"}, {"range": "A3"}, {"range": "A1:B2"}, {"range": "Z9"}, url=sandbox.url)
    assert [answer.result["values"] for answer in answers] == [
        [["1", "1"], ["2", "2"]],
        [["3"]],
        [["1", "1"], ["2", "2"]],
        [],
    ]
    assert answers[0].result["range"] == "Sheet1!A1:B2"
    assert paths(sandbox) == ["/v4/spreadsheets/s1/values:batchGet"]


def test_options_of_a_read_are_passed_on(sandbox, sheets):
    sheets.update("A1:B1", [[1, True]])
    options = {"value_render_option": "UNFORMATTED_VALUE", "major_dimension": "COLUMNS"}
    [done] = run(GET, {"range": "A1:B1", **options}, url=sandbox.url)
    assert done.result == {"range": "Sheet1!A1:B1", "majorDimension": "COLUMNS", "values": [[1], [True]]}


def test_a_large_range_is_read_in_parts_each_of_which_is_a_call(sandbox, sheets, monkeypatch):
    monkeypatch.setattr(google_sheets_reading, "CELLS_OF_A_CALL", 50)
    values = filled(sheets, 62, "B")
    sandbox.clear_ledger()
    [done], runs = run_to_the_end(GET, {"range": "Sheet1!A1:B62"}, url=sandbox.url)
    assert done.result == {"range": "Sheet1!A1:B62", "majorDimension": "ROWS", "values": values}
    assert (runs, len(sandbox.calls(quota_kind="read"))) == (3, 3)


def test_empty_rows_between_parts_keep_their_place(sandbox, sheets):
    sheets.update("A1", [["first"]])
    sheets.update("A25", [["last"]])
    [done], runs = run_to_the_end(GET, {"range": "A1:A40", "page_rows": 10}, url=sandbox.url)
    assert done.result["values"] == [["first"], *[[]] * 23, ["last"]]
    assert runs == 4


@pytest.mark.parametrize("text", ["Sheet1", "A:B", "Sheet1!A2:B", "'Sheet1'!1:1000", "A1:B1000"])
def test_a_range_with_open_ends_is_read_up_to_the_sheets_size(sandbox, sheets, text):
    values = filled(sheets, 950, "B")
    sandbox.clear_ledger()
    [done], runs = run_to_the_end(GET, {"range": text, "page_rows": 400}, url=sandbox.url)
    assert done.result["values"] == (values[1:] if "A2" in text else values)
    assert runs == (3 if text == "A1:B1000" else 4), "the sizes of the sheets take a call"
    _, runs = run_to_the_end(GET, {"range": text, "page_rows": 400}, url=sandbox.url)
    assert runs == 3, "they are known now"


def test_short_reads_go_on_beside_one_that_needs_the_sizes(sandbox, sheets):
    filled(sheets, 30)
    answers, runs = run_to_the_end(GET, {"range": "A1"}, {"range": "A:A", "page_rows": 999}, url=sandbox.url)
    assert [len(answer.result["values"]) for answer in answers] == [1, 30]
    assert runs == 3


def test_another_executor_goes_on_with_what_the_first_has_found_out(sandbox, sheets):
    filled(sheets, 30)
    payload = {"range": "A:A", "page_rows": 999}
    [answer] = run(GET, payload, url=sandbox.url)
    assert isinstance(answer, Continue)
    google_sheets_grids._kept.clear()
    [answer] = run(GET, payload, url=sandbox.url, partials=[json.loads(json.dumps(answer.partial))])
    assert answer.partial["next"] == 999
    [done] = run(GET, payload, url=sandbox.url, partials=[json.loads(json.dumps(answer.partial))])
    assert len(done.result["values"]) == 30


def test_a_word_that_is_no_title_is_left_to_the_provider(sandbox, sheets):
    payload = {"range": "Budget", "page_rows": 10}
    [answer] = run(GET, payload, url=sandbox.url)
    with pytest.raises(ProviderError, match="Unable to parse range: Budget"):
        run(GET, payload, url=sandbox.url, partials=[answer.partial])


def test_sizes_are_kept_for_the_credential_that_read_them(sandbox, sheets):
    run(GET, {"range": "A:A", "page_rows": 10}, url=sandbox.url)
    assert google_sheets_grids.find_grids(credential_of(sandbox.url), "s1") == {"Sheet1": (1000, 26)}
    assert google_sheets_grids.find_grids(credential_of(sandbox.url, name="other"), "s1") is None
    for number in range(google_sheets_grids.MAX_GRIDS_KEPT):
        google_sheets_grids.keep_grids(credential_of(sandbox.url), f"other-{number}", {})
    assert google_sheets_grids.find_grids(credential_of(sandbox.url), "s1") is None


def test_sizes_are_asked_for_again_when_they_are_old(sandbox, sheets, monkeypatch):
    def calls() -> int:
        sandbox.clear_ledger()
        run_to_the_end(GET, {"range": "A:A", "page_rows": 1000}, url=sandbox.url)
        return len(sandbox.calls(quota_kind="read"))

    kept, clock = google_sheets_grids._kept, [0.0]
    monkeypatch.setattr(google_sheets_grids, "_kept", TTLCache(kept.maxsize, kept.ttl, timer=lambda: clock[0]))
    assert (calls(), calls()) == (2, 1)
    clock[0] += google_sheets_grids.GRIDS_KEPT_SECONDS
    assert (calls(), calls()) == (2, 1)


def test_a_bad_range_among_reads_is_cut_out_by_its_name(sandbox, sheets):
    poison = failing(GET, {"range": "A1"}, {"range": "NOPE!A5:F15"}, url=sandbox.url, expected=Poison)
    assert {place: error.status for place, error in poison.errors.items()} == {1: 400}
    places = ("NOPE!A5:F15", "A1", "NOPE!A5:F15", "NOPE!A1")
    poison = failing(GET, *({"range": place} for place in places), url=sandbox.url, expected=Poison)
    assert set(poison.errors) == {0, 2, 3}
    failing(GET, {"range": "A1"}, {"range": "A5000:A5001"}, url=sandbox.url, expected=Bisect)


def test_reads_whose_ranges_do_not_fit_into_an_address_are_halved(sandbox, sheets):
    long = [{"range": f"'{'ü' * 200}{number}'!A1"} for number in range(20)]
    failing(GET, *long, url=sandbox.url, expected=Bisect)
    assert sandbox.calls() == []


def test_values_larger_than_a_job_keeps_are_said_to_be(sandbox, sheets, settings):
    settings.QUEUEOPS = replace(settings.QUEUEOPS, max_job_mb=1)
    for row in range(1, 26):
        sheets.update(f"A{row}", [["x" * 49_000]])
    [done] = run(GET, {"range": "A1:A20"}, url=sandbox.url)
    assert len(done.result["values"]) == 20
    for payload in ({"range": "A1:A25"}, {"range": "A1:A25", "page_rows": 10}):
        [answer], _ = run_to_the_end(GET, payload, url=sandbox.url)
        assert (answer.code, answer.outcome) == ("result_too_large", "refused")


def test_an_answer_too_long_to_take_is_halved_and_then_refused(sandbox, sheets, monkeypatch):
    monkeypatch.setattr(google_sheets_api, "MAX_SHEETS_ANSWER_BYTES", 500)
    filled(sheets, 100)
    failing(GET, {"range": "A1:A100"}, {"range": "A1"}, url=sandbox.url, expected=Bisect)
    error = failing(GET, {"range": "A1:A100"}, url=sandbox.url)
    assert error.code == "result_too_large"


def test_writes_are_done_however_long_the_answer(sandbox, sheets, monkeypatch):
    monkeypatch.setattr(google_sheets_api, "MAX_SHEETS_ANSWER_BYTES", 10)
    assert run(UPDATE, cell("A1"), cell("A2"), url=sandbox.url) == [Done({}), Done({})]
    [done] = run(BATCH, {"requests": [ADD, WIDER]}, url=sandbox.url)
    assert done == Done({"replies": [{}, {}]})
    assert len(sandbox.effects()) == 2
