"""What may be submitted as `google_sheets.*`, and how ranges are taken apart."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

import jobs.handlers.google.sheets  # noqa: F401 (registers the kinds)
from jobs.handlers.google.payloads import MAX_SHEETS_BODY_BYTES, BatchUpdate, ValuesAppend, ValuesGet, ValuesUpdate
from jobs.handlers.google.ranges import Box, Grid, column_name, read_range
from jobs.handlers.registry import find_handler
from sandbox.google_sheets import a1
from tests.support.cases import every_case

WRITE = {"spreadsheet_id": "1Ab-_9", "range": "Sheet1!A1", "values": [["x"]]}
READ = {"spreadsheet_id": "s", "range": "A1"}
REQUESTS = {"spreadsheet_id": "s", "requests": [{"addSheet": {}}]}


def faults(schema, payload):
    """Return the paths of the fields that are refused."""
    with pytest.raises(ValidationError) as refused:
        schema.model_validate(payload)
    return {".".join(str(part) for part in error["loc"][:1]) for error in refused.value.errors()}


@every_case(
    ("change", "field"),
    [
        ({"spreadsheet_id": "../x"}, "spreadsheet_id"),
        ({"spreadsheet_id": "表"}, "spreadsheet_id"),
        ({"spreadsheet_id": ""}, "spreadsheet_id"),
        ({"spreadsheet_id": "a\n"}, "spreadsheet_id"),
        ({"range": ""}, "range"),
        ({"range": "A1\r\nX"}, "range"),
        ({"range": "A" * 501}, "range"),
        ({"values": []}, "values"),
        ({"values": ["x"]}, "values"),
        ({"values": [[{"a": 1}]]}, "values"),
        ({"values": [[["x"]]]}, "values"),
        ({"values": [[float("nan")]]}, "values"),
        ({"values": [["x" * 50_001]]}, "values"),
        ({"value_input_option": "INPUT_VALUE_OPTION_UNSPECIFIED"}, "value_input_option"),
        ({"major_dimension": "rows"}, "major_dimension"),
        ({"credential": "no name"}, "credential"),
        ({"credential": "../secret"}, "credential"),
        ({"colour": "red"}, "colour"),
    ],
)
@every_case("schema", [ValuesUpdate, ValuesAppend])
def test_a_write_that_the_provider_would_refuse_is_refused_at_once(schema, change, field):
    assert faults(schema, {**WRITE, **change}) == {field}


def test_what_is_left_out_has_a_plain_meaning():
    write = ValuesUpdate.model_validate(WRITE)
    assert (write.credential, write.value_input_option, write.major_dimension) == ("google-sheets", "RAW", "ROWS")
    assert ValuesUpdate.model_validate({**WRITE, "values": [[1, 2.5, True, None, "", "ü"]]}).values == [
        [1, 2.5, True, None, "", "ü"]
    ]
    assert type(ValuesUpdate.model_validate({**WRITE, "values": [[True]]}).values[0][0]) is bool


def test_more_than_a_call_takes_is_refused_with_its_size():
    rows = [["x" * 49_000]] * (MAX_SHEETS_BODY_BYTES // 49_000 + 1)
    with pytest.raises(ValidationError, match="split it"):
        ValuesUpdate.model_validate({**WRITE, "values": rows})
    requests = [{"updateCells": {"note": "x" * 49_000}}] * (MAX_SHEETS_BODY_BYTES // 49_000 + 1)
    with pytest.raises(ValidationError, match="split it"):
        BatchUpdate.model_validate({**REQUESTS, "requests": requests})


@every_case(
    ("change", "field"),
    [
        ({"requests": []}, "requests"),
        ({"requests": [{}]}, "requests"),
        ({"requests": [{"addSheet": {}, "deleteSheet": {}}]}, "requests"),
        ({"requests": [{"addSheet": 7}]}, "requests"),
        ({"requests": [{"add sheet": {}}]}, "requests"),
        ({"fields": ""}, "fields"),
        ({"fields": "a&b=c"}, "fields"),
        ({"fields": "addSheet)"}, "fields"),
        ({"fields": ")addSheet("}, "fields"),
        ({"idempotent": "yes"}, "idempotent"),
    ],
)
def test_subrequests_have_one_kind_each(change, field):
    assert faults(BatchUpdate, {**REQUESTS, **change}) == {field}


def test_parts_are_of_rows():
    read = {"spreadsheet_id": "s", "range": "A1:B9"}
    assert ValuesGet.model_validate({**read, "page_rows": 5}).page_rows == 5
    with pytest.raises(ValidationError, match="page_rows goes with"):
        ValuesGet.model_validate({**read, "page_rows": 5, "major_dimension": "COLUMNS"})
    assert faults(ValuesGet, {**read, "page_rows": 0}) == {"page_rows"}


@every_case(
    ("kind", "one", "other", "together"),
    [
        ("values_update", {}, {"range": "B2"}, True),
        ("values_update", {}, {"major_dimension": "COLUMNS"}, True),
        ("values_update", {}, {"spreadsheet_id": "s2"}, False),
        ("values_update", {}, {"value_input_option": "USER_ENTERED"}, False),
        ("values_get", {}, {"range": "B2", "page_rows": 9}, True),
        ("values_get", {}, {"value_render_option": "FORMULA"}, False),
        ("values_get", {}, {"major_dimension": "COLUMNS"}, False),
        ("values_get", {}, {"date_time_render_option": "FORMATTED_STRING"}, False),
        ("batch_update", {}, {"requests": [{"deleteSheet": {}}]}, True),
        ("batch_update", {}, {"idempotent": True}, False),
        ("batch_update", {}, {"fields": "addSheet"}, False),
    ],
)
def test_jobs_leave_together_only_if_one_call_can_carry_both(kind, one, other, together):
    payloads: dict[str, dict[str, Any]] = {"values_update": WRITE, "values_get": READ, "batch_update": REQUESTS}
    base = payloads[kind]
    handler = find_handler(f"google_sheets.{kind}")
    assert handler.coalesce is not None
    keys = [
        handler.coalesce.key(handler.schema.validate_python({**base, **change}, strict=False))
        for change in (one, other)
    ]
    assert (keys[0] == keys[1]) is together


def test_appends_by_columns_leave_alone():
    coalesce = find_handler("google_sheets.values_append").coalesce
    assert coalesce is not None
    columns = ValuesAppend(spreadsheet_id="s1", range="A1", values=[[1]], major_dimension="COLUMNS")
    assert coalesce.key(columns) is None
    assert coalesce.key(columns.model_copy(update={"major_dimension": "ROWS"})) is not None


def test_every_kind_counts_as_its_services_read_or_write():
    kinds = {kind: find_handler(f"google_sheets.{kind}") for kind in ("values_update", "values_append", "batch_update")}
    for handler in kinds.values():
        assert (handler.service, handler.call_type) == ("google-sheets", "write")
    assert find_handler("google_sheets.values_get").call_type == "read"


@every_case(
    ("text", "box"),
    [
        ("A1", Box("", 1, 1, 1, 1)),
        ("$b$2:C3", Box("", 2, 3, 2, 3)),
        ("C3:B2", Box("", 2, 3, 2, 3)),
        ("A:C", Box("", 1, None, 1, 3)),
        ("2:9", Box("", 2, 9, 1, None)),
        ("Two!A5:A", Box("Two", 5, None, 1, 1)),
        ("Two", Box("Two")),
        ("'It''s ü!'!AA10:AB11", Box("'It''s ü!'", 10, 11, 27, 28)),
        ("A:2", Box("A:2")),  # no sheet has such a title, so it is never read in parts
        ("Two!A:2", None),
        ("Two!", None),
        ("Two!B", None),
        ("One!Two!A1", None),
        ("'Two!A1", None),
    ],
)
def test_a_range_is_taken_apart_or_left_to_the_service(text, box):
    assert read_range(text) == box


def test_titles_are_known_without_their_quotes():
    box = read_range("'It''s'!A:B")
    assert box is not None
    assert box.sheet == "It's"
    assert box.within(Grid(7, 9)).part(2, 100) == "'It''s'!A3:B7"


boxes = st.tuples(st.integers(1, 900), st.integers(0, 900), st.integers(1, 700), st.integers(0, 30))


@given(boxes, st.integers(1, 400))
def test_parts_cover_a_range_once_and_the_provider_reads_them_the_same(place, rows):
    row, height, column, width = place
    text = f"'My sheet'!{column_name(column)}{row}:{column_name(column + width)}{row + height}"
    box = read_range(text)
    assert box is not None
    covered: list[int] = []
    for offset in range(0, box.rows, rows):
        title, part = a1.parse(box.part(offset, rows), ["My sheet"])
        assert (title, part.first_column, part.last_column) == ("My sheet", column - 1, column + width)
        assert part.last_row is not None
        covered += range(part.first_row + 1, part.last_row + 1)
    assert covered == list(range(row, row + height + 1))


@given(st.text(max_size=30))
def test_whatever_a_range_says_it_can_be_read(text):
    box = read_range(text)
    assert box is None or box.rows >= 1
