"""The subrequests of spreadsheets.batchUpdate: all of them, or none."""

from collections.abc import Callable
from typing import Any

from sandbox.google_sheets.a1 import GridRange, render
from sandbox.google_sheets.values import PROTECTED
from sandbox.google_sheets.workbook import MAX_GRID_CELLS, BadRequest, Scalar, Sheet, Spreadsheet


class SpreadsheetDraft:
    """A spreadsheet under change: a sheet is copied at its first change, and `commit` stores the copies."""

    def __init__(self, spreadsheet: Spreadsheet, *, protected: list[str]) -> None:
        self._original = spreadsheet
        self._draft = Spreadsheet(spreadsheet.spreadsheet_id, spreadsheet.title, list(spreadsheet.sheets))
        self._copied: set[int] = set()
        self._protected = protected
        self.places: list[str | None] = []

    def carry_out(self, requests: list[Any]) -> list[dict[str, Any]]:
        """
        Apply all requests to the draft and return their replies, in order.

        Raises:
            ApiError: A request is invalid; the message names its index.
        """
        replies = []
        for index, request in enumerate(requests):
            if not isinstance(request, dict) or len(request) != 1:
                raise BadRequest(f"Invalid requests[{index}]: Must specify exactly one request kind.")
            kind, body = next(iter(request)), _object(request, next(iter(request)))
            if kind not in _KINDS:
                raise BadRequest(
                    f"Invalid JSON payload received. Unknown name \"{kind}\" at 'requests[{index}]': Cannot find field."
                )
            try:
                reply, place = _KINDS[kind](self, body)
            except BadRequest as error:
                raise BadRequest(f"Invalid requests[{index}].{kind}: {error}") from None
            replies.append(reply)
            self.places.append(place)
        return replies

    def commit(self) -> None:
        self._original.sheets = self._draft.sheets

    def add_sheet(self, body: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
        wanted = _object(body, "properties")
        grid = _object(wanted, "gridProperties")
        title = wanted.get("title") or f"Sheet{len(self._draft.sheets) + 1}"
        sheet_id = _integer(wanted, "sheetId", default=max(sheet.sheet_id for sheet in self._draft.sheets) + 1)
        self._check_title(title)
        if any(sheet.sheet_id == sheet_id for sheet in self._draft.sheets):
            raise BadRequest(f"A sheet with the ID {sheet_id} already exists. Please use another ID.")
        sheet = Sheet(sheet_id, title, 1, 1)
        sheet.grow(_integer(grid, "rowCount", default=1000, low=1), _integer(grid, "columnCount", default=26, low=1))
        self._draft.sheets.append(sheet)
        self._copied.add(sheet_id)
        return {"addSheet": {"properties": properties(sheet, len(self._draft.sheets) - 1)}}, None

    def delete_sheet(self, body: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
        sheet = self._sheet(body)
        if len(self._draft.sheets) == 1:
            raise BadRequest("You can't remove all the sheets in a document.")
        self._draft.sheets.remove(sheet)
        return {}, None

    def update_sheet_properties(self, body: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
        fields, wanted = _fields(body), _object(body, "properties")
        sheet = self._sheet(wanted)
        if fields & {"*", "title"} and wanted.get("title") != sheet.title:
            self._check_title(wanted.get("title"))
            sheet.title = wanted["title"]
        if fields & {"*", "gridProperties", "gridProperties.rowCount", "gridProperties.columnCount"}:
            grid = _object(wanted, "gridProperties")
            sheet.rows = _integer(grid, "rowCount", default=sheet.rows, low=1)
            sheet.columns = _integer(grid, "columnCount", default=sheet.columns, low=1)
            sheet.grow(0, 0)
            sheet.cells = {place: value for place, value in sheet.cells.items() if _inside(place, sheet)}
        return {}, None

    def update_cells(self, body: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
        writes_values = bool(_fields(body) & {"*", "userEnteredValue"})
        target = _object(body, "range") or _object(body, "start")
        if not target and not body.get("start"):
            raise BadRequest("One of 'start' or 'range' must be specified.")
        sheet = self._sheet(target)
        ranged = "range" in body
        row = _integer(target, "startRowIndex" if ranged else "rowIndex", default=0)
        column = _integer(target, "startColumnIndex" if ranged else "columnIndex", default=0)
        sheet.within(GridRange(row, column))
        return {}, self._fill(sheet, row, column, _rows(body)) if writes_values else None

    def append_cells(self, body: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
        writes_values = bool(_fields(body) & {"*", "userEnteredValue"})
        sheet, rows = self._sheet(body), _rows(body)
        row = sheet.end_row()
        sheet.grow(row + len(rows), max((len(line) for line in rows), default=0))
        return {}, self._fill(sheet, row, 0, rows) if writes_values else None

    def append_dimension(self, body: dict[str, Any]) -> tuple[dict[str, Any], str | None]:
        sheet, length = self._sheet(body), _integer(body, "length", default=0, low=1)
        if body.get("dimension") == "COLUMNS":
            sheet.grow(sheet.rows, sheet.columns + length)
        else:
            sheet.grow(sheet.rows + length, sheet.columns)
        return {}, None

    def _fill(self, sheet: Sheet, row: int, column: int, rows: list[list[Scalar | None]]) -> str:
        box = GridRange(row, column, row + max(len(rows), 1), column + max(map(len, rows), default=1))
        if self._draft.protects(sheet, box, self._protected):
            raise BadRequest(PROTECTED)
        for down, line in enumerate(rows):
            for across, value in enumerate(line):
                sheet.put(row + down, column + across, value)
        return render(sheet.title, box)

    def _sheet(self, body: dict[str, Any]) -> Sheet:
        sheet_id = _integer(body, "sheetId", default=0)
        for position, sheet in enumerate(self._draft.sheets):
            if sheet.sheet_id == sheet_id:
                if sheet_id not in self._copied:
                    self._copied.add(sheet_id)
                    self._draft.sheets[position] = sheet.copy()
                return self._draft.sheets[position]
        raise BadRequest(f"No grid with id: {sheet_id}")

    def _check_title(self, title: Any) -> None:
        if not isinstance(title, str) or not title or len(title) > 100:  # noqa: PLR2004 (the service's limit)
            raise BadRequest("A sheet's name must have 1 to 100 characters.")
        if title in self._draft.titles():
            raise BadRequest(f'A sheet with the name "{title}" already exists. Please enter another name.')


def properties(sheet: Sheet, index: int) -> dict[str, Any]:
    return {
        "sheetId": sheet.sheet_id,
        "title": sheet.title,
        "index": index,
        "sheetType": "GRID",
        "gridProperties": {"rowCount": sheet.rows, "columnCount": sheet.columns},
    }


_KINDS: dict[str, Callable[[SpreadsheetDraft, dict[str, Any]], tuple[dict[str, Any], str | None]]] = {
    "addSheet": SpreadsheetDraft.add_sheet,
    "deleteSheet": SpreadsheetDraft.delete_sheet,
    "updateSheetProperties": SpreadsheetDraft.update_sheet_properties,
    "updateCells": SpreadsheetDraft.update_cells,
    "appendCells": SpreadsheetDraft.append_cells,
    "appendDimension": SpreadsheetDraft.append_dimension,
}


def _inside(place: tuple[int, int], sheet: Sheet) -> bool:
    return place[0] < sheet.rows and place[1] < sheet.columns


def _fields(body: dict[str, Any]) -> set[str]:
    names = {name.strip() for name in str(body.get("fields") or "").split(",") if name.strip()}
    if not names:
        raise BadRequest("At least one field must be listed in 'fields'. (Use '*' to indicate all fields.)")
    return names


def _object(body: dict[str, Any], name: str) -> dict[str, Any]:
    found = body.get(name) or {}
    if not isinstance(found, dict):
        raise BadRequest(f"{name} must be an object.")
    return found


def _integer(body: dict[str, Any], name: str, *, default: int, low: int = 0) -> int:
    found = body.get(name, default)
    if not isinstance(found, int) or isinstance(found, bool) or not low <= found <= MAX_GRID_CELLS * 1_000:
        raise BadRequest(f"{name} must be a whole number of at least {low}.")
    return found


def _rows(body: dict[str, Any]) -> list[list[Scalar | None]]:
    lines = body.get("rows") or []
    if not isinstance(lines, list) or not all(isinstance(line, dict) for line in lines):
        raise BadRequest("rows must be a list of RowData.")
    cells = [line.get("values") or [] for line in lines]
    if not all(isinstance(line, list) for line in cells):
        raise BadRequest("values must be a list of CellData.")
    return [[_cell(cell) for cell in line] for line in cells]


def _cell(cell: Any) -> Scalar | None:
    value = cell.get("userEnteredValue") if isinstance(cell, dict) else None
    if not value:
        return None
    known = ("numberValue", "stringValue", "boolValue", "formulaValue")
    if not isinstance(value, dict) or len(value) != 1 or next(iter(value)) not in known:
        raise BadRequest("userEnteredValue must have exactly one of " + ", ".join(known) + ".")
    found = next(iter(value.values()))
    if not isinstance(found, str | bool | int | float):
        raise BadRequest("userEnteredValue must hold a scalar.")
    return found
