import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.google_sheets import masks
from sandbox.google_sheets.a1 import GridRange, UnparsableRange, column_name, parse, render
from tests.sandbox.providers import SheetsClient, ask
from tests.support.all_faults import all_faults
from tests.support.sandbox import Sandbox


@pytest.fixture
def sheets(sandbox: Sandbox) -> SheetsClient:
    """A client of a new spreadsheet without quotas."""
    unlimited = dict.fromkeys(("reads_per_project", "writes_per_project", "reads_per_user", "writes_per_user"))
    sandbox.turn(google_sheets=unlimited)
    return SheetsClient(sandbox.url)


def test_ranges_are_read():
    for text, title, box in (
        ("A1", "One", GridRange(0, 0, 1, 1)),
        ("$b$2:C3", "One", GridRange(1, 1, 3, 3)),
        ("C3:B2", "One", GridRange(1, 1, 3, 3)),
        ("Two", "Two", GridRange()),
        ("Two!A:B", "Two", GridRange(0, 0, None, 2)),
        ("Two!2:3", "Two", GridRange(1, 0, 3, None)),
        ("Two!A5:A", "Two", GridRange(4, 0, None, 1)),
        ("'It''s ü!'!AA10", "It's ü!", GridRange(9, 26, 10, 27)),
        ("'Two'", "Two", GridRange()),
    ):
        assert parse(text, ["One", "Two", "It's ü!"]) == (title, box), text


def test_what_is_no_range_is_said():
    with all_faults() as of:
        for text in ("NOPE!A5:F15", "A0", "1A", "A", "Two!", "", "A:2", "2:A", "A1:B2:C3", "'One!A1", "5"):
            with of(text), pytest.raises(UnparsableRange):
                parse(text, ["One", "Two"])


@given(st.integers(0, 18_000), st.integers(0, 9_999), st.integers(1, 50), st.integers(1, 50))
def test_a_written_range_is_read_back(column, row, width, height):
    box = GridRange(row, column, row + height, column + width)
    assert parse(render("It's", box), ["One", "It's"]) == ("It's", box)


def test_columns_are_named_like_those_of_a_sheet():
    assert [column_name(index) for index in (0, 25, 26, 701, 702)] == ["A", "Z", "AA", "ZZ", "AAA"]


def test_a_range_is_read_back_as_it_was_written(sheets):
    answer = sheets.update("Sheet1!B2:C3", [["a", 1], [True, 2.5]])
    assert answer.json() == {
        "spreadsheetId": "s1",
        "updatedRange": "Sheet1!B2:C3",
        "updatedRows": 2,
        "updatedColumns": 2,
        "updatedCells": 4,
    }
    read = sheets.get("Sheet1!A1:D9", valueRenderOption="UNFORMATTED_VALUE").json()
    assert read["range"] == "Sheet1!A1:D9"
    assert read["values"] == [[], ["", "a", 1], ["", True, 2.5]]
    assert sheets.get("B2:C3").json()["values"] == [["a", "1"], ["TRUE", "2.5"]]
    assert sheets.get("B2:C3", majorDimension="COLUMNS").json()["values"] == [["a", "TRUE"], ["1", "2.5"]]
    assert "values" not in sheets.get("E5:F6").json()


def test_null_leaves_a_cell_alone_and_an_empty_text_clears_it(sheets):
    sheets.update("A1:C1", [["a", "b", "c"]])
    sheets.update("A1:C1", [[None, "", "z"]])
    assert sheets.get("A1:C1").json()["values"] == [["a", "", "z"]]


def test_user_entered_values_are_parsed_and_raw_ones_are_not(sheets):
    sheets.update("A1", [["12", "true", "x"]], option="USER_ENTERED")
    sheets.update("A2", [["12"]])
    values = sheets.get("A1:C2", valueRenderOption="UNFORMATTED_VALUE").json()["values"]
    assert values == [[12, True, "x"], ["12"]]


def test_append_adds_below_what_is_there_and_lets_the_grid_grow(sandbox, sheets):
    sandbox.turn(google_sheets={"grid_rows": 2})
    first = sheets.append("Sheet1!A1", [["a"], ["b"]]).json()
    second = sheets.append("Sheet1!A1", [["c", "d"]]).json()
    assert "tableRange" not in first
    assert (second["tableRange"], second["updates"]["updatedRange"]) == ("Sheet1!A1:A2", "Sheet1!A3:B3")
    assert sheets.get("Sheet1").json()["values"] == [["a"], ["b"], ["c", "d"]]


def test_clear_empties_a_range_only(sheets):
    sheets.update("A1:A3", [["a"], ["b"], ["c"]])
    assert sheets.call("/values/A2:A9:clear", method="POST", body={}).json()["clearedRange"] == "Sheet1!A2:A9"
    assert sheets.get("Sheet1").json()["values"] == [["a"]]


def test_a_batch_of_ranges_is_one_request_with_totals(sandbox, sheets):
    reply = sheets.write_ranges({"A1": [["a"]], "B2:C3": [[1, 2], [3, 4]]}).json()
    totals = {name: reply[name] for name in reply if name.startswith("total")}
    assert totals == {"totalUpdatedRows": 3, "totalUpdatedColumns": 3, "totalUpdatedCells": 5, "totalUpdatedSheets": 1}
    assert [entry["updatedRange"] for entry in reply["responses"]] == ["Sheet1!A1", "Sheet1!B2:C3"]
    ranges = sheets.call("/values:batchGet", ranges=["A1", "B2:C3"]).json()["valueRanges"]
    assert [entry["values"] for entry in ranges] == [[["a"]], [["1", "2"], ["3", "4"]]]
    assert len(sandbox.calls(quota_kind="write")) == 1
    assert sandbox.effects() == {"s1/Sheet1!A1": 1, "s1/Sheet1!B2:C3": 1}


def test_one_bad_range_refuses_the_whole_batch_and_is_named(sheets):
    refused = sheets.write_ranges({"A1": [["a"]], "NOPE!A5:F15": [["b"]]})
    assert (refused.status, refused.message()) == (400, "Invalid data[1]: Unable to parse range: NOPE!A5:F15")
    assert "values" not in sheets.get("Sheet1").json()


ADD_TWICE = [{"addSheet": {"properties": {"title": "New"}}}, {"addSheet": {"properties": {"title": "Sheet1"}}}]


def test_an_invalid_subrequest_is_named_and_nothing_is_applied(sandbox, sheets):
    refused = sheets.batch(*ADD_TWICE)
    assert refused.error() == {
        "code": 400,
        "message": 'Invalid requests[1].addSheet: A sheet with the name "Sheet1" already exists. '
        "Please enter another name.",
        "status": "INVALID_ARGUMENT",
    }
    assert [sheet["properties"]["title"] for sheet in sheets.call("").json()["sheets"]] == ["Sheet1"]
    assert sandbox.counters()["effects_applied"] == 0


def cells(*values, kind="stringValue"):
    return [{"values": [{"userEnteredValue": {kind: value}} for value in values]}]


def test_subrequests_are_applied_in_order_with_one_reply_each(sheets):
    new = {"sheetId": 7, "title": "New", "gridProperties": {"rowCount": 2, "columnCount": 2}}
    start = {"sheetId": 7, "rowIndex": 0, "columnIndex": 0}
    reply = sheets.batch(
        {"addSheet": {"properties": new}},
        {"updateCells": {"start": start, "rows": cells("a", "b"), "fields": "userEnteredValue"}},
        {"appendCells": {"sheetId": 7, "rows": cells(1, 2, 3, kind="numberValue"), "fields": "*"}},
        {"updateSheetProperties": {"properties": {"sheetId": 7, "title": "Newer"}, "fields": "title"}},
        {"deleteSheet": {"sheetId": 0}},
    ).json()
    assert [list(entry) for entry in reply["replies"]] == [["addSheet"], [], [], [], []]
    assert reply["replies"][0]["addSheet"]["properties"]["title"] == "New"
    assert sheets.get("Newer!A1:C2").json()["values"] == [["a", "b"], ["1", "2", "3"]]


def test_wrong_subrequests_are_refused_in_the_services_words(sheets):
    for request, message in (
        ({"updateCells": {"start": {"sheetId": 9}, "rows": [], "fields": "*"}}, "No grid with id: 9"),
        ({"updateCells": {"start": {}, "rows": cells("a"), "fields": ""}}, "At least one field must be listed"),
        ({"appendCells": {"sheetId": 0, "rows": cells("a")}}, "At least one field must be listed"),
        ({"deleteSheet": {"sheetId": 9}}, "No grid with id: 9"),
        ({"updateCells": {"start": {"rowIndex": 5000}, "rows": [], "fields": "*"}}, "exceeds grid limits"),
        ({"paintItBlack": {}}, "Unknown name \"paintItBlack\" at 'requests[1]': Cannot find field."),
    ):
        refused = sheets.batch({"addSheet": {}}, request)
        assert refused.status == 400, request
        assert message in refused.message()
        assert "requests[1]" in refused.message()
        assert len(sheets.call("").json()["sheets"]) == 1


def test_wrong_requests_are_refused_in_the_services_words(sandbox, sheets):
    assert "can't remove all the sheets" in sheets.batch({"deleteSheet": {"sheetId": 0}}).message()
    assert sheets.batch().message() == "Must specify at least one request."
    assert sheets.get("NOPE!A5:F15").message() == "Unable to parse range: NOPE!A5:F15"
    assert "exceeds grid limits. Max rows: 1000, max columns: 26" in sheets.update("A1001", [["a"]]).message()
    assert "exceeds grid limits" in sheets.update("Z1000", [["a", "b"]]).message()
    assert "tried writing to row [2]" in sheets.update("A1:B1", [["a"], ["b"]]).message()
    assert "tried writing to column [C]" in sheets.update("A1:B1", [["a", "b", "c"]]).message()
    assert "valueInputOption" in sheets.call("/values/A1", method="PUT", body={"values": [["a"]]}).message()
    assert "Invalid values[0][1]: list_value" in sheets.update("A1", [["a", []]]).message()
    unknown = sheets.call(":batchUpdate", method="POST", body={"request": []})
    assert 'Unknown name "request"' in unknown.message()
    assert sheets.call("/values/A1", method="PUT", body=b"{", valueInputOption="RAW").status == 400
    assert {call["status"] for call in sandbox.calls()} == {400}


def test_protected_cells_refuse_a_write_that_touches_them(sandbox, sheets):
    sandbox.turn(google_sheets={"protected_ranges": ["Sheet1!B2"]})
    refused = sheets.write_ranges({"A1": [["a"]], "A2:C2": [["b"]], "B2": [["c"]]})
    assert refused.message().startswith("Invalid data[2]: You are trying to edit a protected cell")
    assert sheets.update("B2", [["x"]]).message().startswith("You are trying to edit a protected cell")
    assert sheets.update("B3", [["x"]]).status == 200


def test_masks_trim_answers_and_unknown_fields_are_refused(sheets):
    sheets.update("A1", [["a"]])
    assert sheets.call("", fields="sheets.properties(title,sheetId)").json() == {
        "sheets": [{"properties": {"title": "Sheet1", "sheetId": 0}}]
    }
    assert sheets.get("A1", fields="values").json() == {"values": [["a"]]}
    data = sheets.call("", fields="sheets/data/rowData/values/formattedValue", ranges="A1:A2").json()
    assert data["sheets"][0]["data"][0]["rowData"] == [{"values": [{"formattedValue": "a"}]}]
    refused = sheets.update("A1", [["b"]], fields="colour")
    assert refused.status == 400
    assert "path 'colour'" in refused.error()["details"][0]["fieldViolations"][0]["description"]
    assert sheets.get("A1").json()["values"] == [["a"]]


def test_a_mask_that_cannot_be_parsed_is_refused():
    with all_faults() as of:
        for text in ("", "a(", "a(b", "a)", "a..b", ",", "(" * 50):
            with of(text), pytest.raises(masks.InvalidMask):
                masks.parse(text)


@pytest.mark.parametrize(
    ("agent", "accepts", "packed"),
    [("client (gzip)", "gzip", True), ("client", "gzip", False), ("client (gzip)", "identity", False)],
)
def test_answers_are_compressed_for_clients_that_say_gzip_twice(sheets, agent, accepts, packed):
    sheets.update("A1:A9", [["text"]] * 9)
    answer = sheets.call("/values/A1:A9", headers={"User-Agent": agent, "Accept-Encoding": accepts})
    assert (answer.headers["Content-Encoding"] == "gzip") is packed
    assert len(answer.json()["values"]) == 9


def test_spreadsheets_can_be_unknown_forbidden_or_their_service_disabled(sandbox, sheets):
    sandbox.turn(google_sheets={"spreadsheets": ["s2"]})
    assert (sheets.get("A1").status, sheets.get("A1").message()) == (404, "Requested entity was not found.")
    sandbox.turn(google_sheets={"spreadsheets": None, "forbidden_spreadsheets": ["s*"]})
    assert sheets.get("A1").error() == {
        "code": 403,
        "message": "The caller does not have permission",
        "status": "PERMISSION_DENIED",
    }
    sandbox.turn(google_sheets={"disabled_projects": ["p1"]})
    assert sheets.get("A1").error()["details"][1]["reason"] == "SERVICE_DISABLED"
    assert ask(f"{sandbox.url}/v4/spreadsheets/s1").error()["status"] == "UNAUTHENTICATED"


def test_a_503_can_hide_an_append_that_was_done(sandbox, sheets):
    sandbox.turn(apply_then_503_rate=1)
    answer = sheets.append("A1", [["a"]])
    assert (answer.status, answer.error()["status"]) == (503, "UNAVAILABLE")
    assert sheets.get("A1:A9").json()["values"] == [["a"]]
    assert sandbox.counters()["effects_applied"] == 1
