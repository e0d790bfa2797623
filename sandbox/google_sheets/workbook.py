"""Spreadsheets in memory: sheets as grids of cells."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from sandbox.envelopes import ApiError, envelope, google_error
from sandbox.google_sheets.a1 import GridRange, UnparsableRange, column_name, parse, quoted_title

MAX_SPREADSHEETS = 30_000
MAX_GRID_CELLS = 10_000_000
MAX_STORED_CELLS = 2_000_000

Scalar = str | bool | int | float


class BadRequest(ApiError):
    """The request cannot be carried out: 400, with the service's message."""

    def __init__(self, message: str) -> None:
        super().__init__(400, envelope(400, message))
        self.message = message

    def __str__(self) -> str:
        return self.message


@dataclass(slots=True, eq=False)
class Sheet:
    sheet_id: int
    title: str
    rows: int
    columns: int
    cells: dict[tuple[int, int], Scalar] = field(default_factory=dict)

    def copy(self) -> "Sheet":
        return Sheet(self.sheet_id, self.title, self.rows, self.columns, dict(self.cells))

    def within(self, box: GridRange) -> GridRange:
        """
        Return the box with its open ends closed and its ends cut to the grid.

        Raises:
            ApiError: The box starts outside the grid.
        """
        if box.first_row >= self.rows or box.first_column >= self.columns:
            cell = f"{quoted_title(self.title)}!{column_name(box.first_column)}{box.first_row + 1}"
            raise BadRequest(f"Range ({cell}) exceeds grid limits. Max rows: {self.rows}, max columns: {self.columns}")
        last_row = self.rows if box.last_row is None else min(box.last_row, self.rows)
        last_column = self.columns if box.last_column is None else min(box.last_column, self.columns)
        return GridRange(box.first_row, box.first_column, last_row, last_column)

    def present(self, box: GridRange) -> Iterator[tuple[int, int]]:
        """Yield the cells of a closed box that are not empty, by the shorter of two searches."""
        last_row, last_column = box.last_row or 0, box.last_column or 0
        rows, columns = range(box.first_row, last_row), range(box.first_column, last_column)
        if len(rows) * len(columns) <= len(self.cells):
            yield from ((row, column) for row in rows for column in columns if (row, column) in self.cells)
        else:
            yield from [place for place in self.cells if place[0] in rows and place[1] in columns]

    def table(self, box: GridRange) -> list[list[Scalar]]:
        """Return the rows of a closed box, without the empty cells at the end of each row, and the empty last rows."""
        table: list[list[Scalar]] = []
        for row, column in sorted(self.present(box)):
            table += [[] for _ in range(row - box.first_row + 1 - len(table))]
            line = table[row - box.first_row]
            line += [""] * (column - box.first_column - len(line))
            line.append(self.cells[row, column])
        return table

    def put(self, row: int, column: int, value: Scalar | None) -> None:
        """
        Set a cell; an empty text clears it.

        Raises:
            ApiError: The cell lies outside the grid, or the sandbox is full.
        """
        self.within(GridRange(row, column))
        if value is None or value == "":
            self.cells.pop((row, column), None)
            return
        if len(self.cells) >= MAX_STORED_CELLS:
            raise BadRequest(f"The sandbox keeps at most {MAX_STORED_CELLS} cells of a sheet.")
        self.cells[row, column] = value

    def grow(self, rows: int, columns: int) -> None:
        """
        Make the grid at least so large.

        Raises:
            ApiError: The grid would be larger than a spreadsheet may be.
        """
        rows, columns = max(rows, self.rows), max(columns, self.columns)
        if rows * columns > MAX_GRID_CELLS:
            raise BadRequest(
                "This action would increase the number of cells in the workbook above the limit of "
                f"{MAX_GRID_CELLS} cells."
            )
        self.rows, self.columns = rows, columns

    def end_row(self) -> int:
        """Return the row after the last row that is not empty."""
        return max((row + 1 for row, _ in self.cells), default=0)


@dataclass(slots=True)
class Spreadsheet:
    spreadsheet_id: str
    title: str
    sheets: list[Sheet]

    def titles(self) -> list[str]:
        return [sheet.title for sheet in self.sheets]

    def find(self, text: str) -> tuple[Sheet, GridRange]:
        """
        Return the sheet and the cells that a range names.

        Raises:
            ApiError: The range cannot be parsed.
        """
        try:
            title, box = parse(text, self.titles())
        except UnparsableRange:
            raise BadRequest(f"Unable to parse range: {text}") from None
        return next(sheet for sheet in self.sheets if sheet.title == title), box

    def protects(self, sheet: Sheet, box: GridRange, ranges: list[str]) -> bool:
        for text in ranges:
            try:
                protected, cells = self.find(text)
            except BadRequest:
                continue
            if protected.sheet_id == sheet.sheet_id and cells.overlaps(box):
                return True
        return False


class Workbook:
    """All spreadsheets; each is created when it is first requested."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._spreadsheets: dict[str, Spreadsheet] = {}

    def open(self, spreadsheet_id: str, *, rows: int, columns: int) -> Spreadsheet:
        """
        Return a spreadsheet; a new one has one sheet of that size, `Sheet1`.

        Raises:
            ApiError: The sandbox keeps no more spreadsheets until it is reset.
        """
        found = self._spreadsheets.get(spreadsheet_id)
        if found is None:
            if len(self._spreadsheets) >= MAX_SPREADSHEETS:
                raise google_error(507, "The sandbox is full; POST /_sandbox/reset empties it.")
            sheet = Sheet(0, "Sheet1", rows, columns)
            found = self._spreadsheets[spreadsheet_id] = Spreadsheet(spreadsheet_id, "Untitled spreadsheet", [sheet])
        return found
