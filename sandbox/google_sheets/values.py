"""Reading and writing the values of ranges."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from sandbox.google_sheets.a1 import GridRange, column_name, render
from sandbox.google_sheets.workbook import BadRequest, Scalar, Sheet, Spreadsheet

PROTECTED = (
    "You are trying to edit a protected cell or object. "
    "Please contact the spreadsheet owner to remove protection if you need to edit."
)

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_INPUT_OPTIONS = {"RAW", "USER_ENTERED"}
_RENDER_OPTIONS = {"FORMATTED_VALUE", "UNFORMATTED_VALUE", "FORMULA"}


@dataclass(frozen=True, slots=True)
class Write:
    """One checked range with its cells; a call writes nothing before all of its ranges are checked."""

    sheet: Sheet
    box: GridRange
    cells: list[tuple[int, int, Scalar]]
    rows: int
    columns: int

    @property
    def place(self) -> str:
        return render(self.sheet.title, self.box)


@dataclass(frozen=True, slots=True)
class Reader:
    """How values are to be shown."""

    by_columns: bool = False
    formatted: bool = True

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "Reader":
        """
        Read majorDimension and valueRenderOption.

        Raises:
            ApiError: An unknown value.
        """
        render_option = options.get("valueRenderOption", "FORMATTED_VALUE")
        if render_option not in _RENDER_OPTIONS:
            raise BadRequest(f"Invalid value at 'value_render_option', \"{render_option}\"")
        return cls(_by_columns(options.get("majorDimension")), render_option == "FORMATTED_VALUE")

    def value_range(self, sheet: Sheet, box: GridRange) -> dict[str, Any]:
        """Return a ValueRange of a closed box; if all cells are empty, it has no `values`."""
        table: list[list[Any]] = sheet.table(box)
        if self.formatted:
            table = [[shown(value) for value in line] for line in table]
        if self.by_columns:
            table = [_without_end(list(column)) for column in zip_longest(*table, fillvalue="")]
        answer: dict[str, Any] = {
            "range": render(sheet.title, box),
            "majorDimension": "COLUMNS" if self.by_columns else "ROWS",
        }
        return {**answer, "values": table} if table else answer


@dataclass(frozen=True, slots=True)
class Writer:
    """How values are to be read; `protected` are ranges that may not be written."""

    user_entered: bool
    protected: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, option: Any, protected: list[str]) -> "Writer":
        """
        Read valueInputOption.

        Raises:
            ApiError: The option is missing or unknown.
        """
        if option is None:
            raise BadRequest("'valueInputOption' is required but not specified")
        if option not in _INPUT_OPTIONS:
            raise BadRequest(f"Invalid value at 'value_input_option', \"{option}\"")
        return cls(option == "USER_ENTERED", protected)

    def update(self, spreadsheet: Spreadsheet, text: str, body: Any) -> Write:
        """
        Check an update of a range.

        Raises:
            ApiError: The request is invalid, or the range is protected.
        """
        sheet, asked = spreadsheet.find(text)
        lines, box = _lines(body), sheet.within(asked)
        write = self._write(sheet, box, lines)
        if not asked.is_cell:
            if write.box.last_row and box.last_row and write.box.last_row > box.last_row:
                self._outside(sheet, box, f"row [{box.last_row + 1}]")
            if write.box.last_column and box.last_column and write.box.last_column > box.last_column:
                self._outside(sheet, box, f"column [{column_name(box.last_column)}]")
        sheet.within(GridRange((write.box.last_row or 1) - 1, (write.box.last_column or 1) - 1))
        self._check_protection(spreadsheet, write)
        return write

    def append(self, spreadsheet: Spreadsheet, text: str, body: Any) -> Write:
        """
        Check an append; the rows go below the last row of the sheet that is not empty.

        Raises:
            ApiError: The request is invalid, the range is protected, or the sheet would become too large.
        """
        sheet, asked = spreadsheet.find(text)
        box, row = sheet.within(asked), sheet.end_row()
        write = self._write(sheet, GridRange(row, box.first_column, row + 1, box.last_column), _lines(body))
        self._check_protection(spreadsheet, write)
        sheet.grow(write.box.last_row or 0, write.box.last_column or 0)
        return write

    def _write(self, sheet: Sheet, box: GridRange, lines: list[list[Any]]) -> Write:
        cells = [
            (box.first_row + down, box.first_column + across, self._value(value, down, across))
            for down, line in enumerate(lines)
            for across, value in enumerate(line)
            if value is not None
        ]
        rows, columns = len(lines), max((len(line) for line in lines), default=0)
        filled = GridRange(
            box.first_row, box.first_column, box.first_row + max(rows, 1), box.first_column + max(columns, 1)
        )
        return Write(sheet, filled, cells, rows, columns)

    def _value(self, value: Any, down: int, across: int) -> Scalar:
        if not isinstance(value, str | bool | int | float):
            kind = "list_value" if isinstance(value, list) else "struct_value"
            raise BadRequest(f"Invalid values[{down}][{across}]: {kind} {{}}")
        if not self.user_entered or not isinstance(value, str):
            return value
        if value.upper() in {"TRUE", "FALSE"}:
            return value.upper() == "TRUE"
        if _NUMBER.fullmatch(value):
            return int(value) if value.lstrip("+-").isdigit() and len(value) < 16 else float(value)  # noqa: PLR2004
        return value.removeprefix("'")

    def _outside(self, sheet: Sheet, box: GridRange, where: str) -> None:
        raise BadRequest(f"Requested writing within range [{render(sheet.title, box)}], but tried writing to {where}")

    def _check_protection(self, spreadsheet: Spreadsheet, write: Write) -> None:
        if spreadsheet.protects(write.sheet, write.box, self.protected):
            raise BadRequest(PROTECTED)


def apply(write: Write) -> None:
    for row, column, value in write.cells:
        write.sheet.put(row, column, value)


def update_reply(spreadsheet: Spreadsheet, write: Write, *, echo: Reader | None) -> dict[str, Any]:
    reply: dict[str, Any] = {
        "spreadsheetId": spreadsheet.spreadsheet_id,
        "updatedRange": write.place,
        "updatedRows": write.rows,
        "updatedColumns": write.columns,
        "updatedCells": len(write.cells),
    }
    return {**reply, "updatedData": echo.value_range(write.sheet, write.box)} if echo else reply


def clear(spreadsheet: Spreadsheet, text: str, protected: list[str]) -> str:
    """
    Empty a range and return it as the service writes it.

    Raises:
        ApiError: The range is invalid or protected.
    """
    sheet, asked = spreadsheet.find(text)
    box = sheet.within(asked)
    if spreadsheet.protects(sheet, box, protected):
        raise BadRequest(PROTECTED)
    for place in list(sheet.present(box)):
        del sheet.cells[place]
    return render(sheet.title, box)


def shown(value: Scalar) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def table_range(sheet: Sheet) -> str | None:
    """Return the range that holds all of a sheet's values."""
    if not sheet.cells:
        return None
    rows, columns = zip(*sheet.cells, strict=True)
    return render(sheet.title, GridRange(min(rows), min(columns), max(rows) + 1, max(columns) + 1))


def _lines(body: Any) -> list[list[Any]]:
    lines = body.get("values", []) if isinstance(body, dict) else []
    if not isinstance(lines, list) or not all(isinstance(line, list) for line in lines):
        raise BadRequest("Invalid value at 'data.values' (type.googleapis.com/google.protobuf.ListValue)")
    if not _by_columns(body.get("majorDimension")):
        return lines
    return [list(line) for line in zip_longest(*lines)]


def _by_columns(dimension: Any) -> bool:
    if dimension not in {None, "ROWS", "COLUMNS", "DIMENSION_UNSPECIFIED"}:
        raise BadRequest(f"Invalid value at 'major_dimension', \"{dimension}\"")
    return bool(dimension == "COLUMNS")


def _without_end(line: list[Any]) -> list[Any]:
    while line and line[-1] == "":
        line.pop()
    return line
