"""Spreadsheets as spreadsheets.get shows them."""

from typing import Any

from sandbox.google_sheets.a1 import GridRange
from sandbox.google_sheets.subrequests import properties
from sandbox.google_sheets.values import shown
from sandbox.google_sheets.workbook import Scalar, Sheet, Spreadsheet


def describe(spreadsheet: Spreadsheet, *, ranges: list[str], grid_data: bool) -> dict[str, Any]:
    """
    Return a spreadsheet's metadata, with `grid_data` also the cells of the ranges, or of all sheets.

    Raises:
        ApiError: A range cannot be read.
    """
    wanted: dict[int, list[GridRange]] = {}
    for text in ranges:
        sheet, box = spreadsheet.find(text)
        wanted.setdefault(sheet.sheet_id, []).append(sheet.within(box))
    sheets = []
    for index, sheet in enumerate(spreadsheet.sheets):
        if ranges and sheet.sheet_id not in wanted:
            continue
        entry: dict[str, Any] = {"properties": properties(sheet, index)}
        if grid_data:
            entry["data"] = [_grid(sheet, box) for box in wanted.get(sheet.sheet_id) or [sheet.within(GridRange())]]
        sheets.append(entry)
    return {
        "spreadsheetId": spreadsheet.spreadsheet_id,
        "properties": {"title": spreadsheet.title, "locale": "en_GB", "timeZone": "Etc/UTC"},
        "sheets": sheets,
        "spreadsheetUrl": f"https://docs.google.com/spreadsheets/d/{spreadsheet.spreadsheet_id}/edit",
    }


def _grid(sheet: Sheet, box: GridRange) -> dict[str, Any]:
    grid: dict[str, Any] = {
        "rowData": [{"values": [_cell(value) for value in line]} if line else {} for line in sheet.table(box)]
    }
    starts = {"startRow": box.first_row, "startColumn": box.first_column}
    return {**{name: start for name, start in starts.items() if start}, **grid}


def _cell(value: Scalar) -> dict[str, Any]:
    if value == "":
        return {}
    kind = "boolValue" if isinstance(value, bool) else "stringValue" if isinstance(value, str) else "numberValue"
    return {"userEnteredValue": {kind: value}, "effectiveValue": {kind: value}, "formattedValue": shown(value)}
