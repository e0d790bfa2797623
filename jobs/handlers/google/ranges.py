"""Ranges in A1 notation, as far as reading a range in parts needs. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import NamedTuple

_CELLS = re.compile(
    r"\$?(?P<column>[A-Za-z]{1,3})?\$?(?P<row>[1-9][0-9]{0,7})?"
    r"(?:(?P<colon>:)\$?(?P<last_column>[A-Za-z]{1,3})?\$?(?P<last_row>[1-9][0-9]{0,7})?)?"
)
_TITLED = re.compile(r"('[^']*(?:''[^']*)*'|[^'!]+)(?:!(.+))?")
_LETTERS = 26


class Grid(NamedTuple):
    """The size of a sheet."""

    rows: int
    columns: int


@dataclass(frozen=True, slots=True)
class Box:
    """
    A range taken apart; rows and columns from 1, both ends inclusive. None: the end is open.

    Attributes:
        title: As it was written, with its quotes; empty: the spreadsheet's first sheet.
    """

    title: str = ""
    first_row: int = 1
    last_row: int | None = None
    first_column: int = 1
    last_column: int | None = None

    @property
    def is_closed(self) -> bool:
        return self.last_row is not None and self.last_column is not None

    @property
    def sheet(self) -> str:
        """The title without quotes."""
        return self.title[1:-1].replace("''", "'") if self.title.startswith("'") else self.title

    @property
    def rows(self) -> int:
        return (self.last_row or self.first_row) - self.first_row + 1

    @property
    def columns(self) -> int:
        return (self.last_column or self.first_column) - self.first_column + 1

    def within(self, grid: Grid) -> Box:
        """Return the box with its open ends closed at the sheet's last row and column."""
        return replace(self, last_row=self.last_row or grid.rows, last_column=self.last_column or grid.columns)

    def part(self, offset: int, rows: int) -> str:
        """Return `rows` rows of a closed box, from `offset` rows below its first, in A1 notation; fewer at its end."""
        first = self.first_row + offset
        last = min(first + rows - 1, self.last_row or first)
        place = f"{column_name(self.first_column)}{first}:{column_name(self.last_column or self.first_column)}{last}"
        return f"{self.title}!{place}" if self.title else place


def read_range(text: str) -> Box | None:
    """
    Take a range apart; None: only the service can read the range.

    A word that is no cell is read as the title of a sheet, though it may be a named range.
    """
    if "!" not in text and (box := _cells("", text)) is not None:
        return box
    match = _TITLED.fullmatch(text)
    if match is None:
        return None
    return Box(match[1]) if match[2] is None else _cells(match[1], match[2])


def column_name(number: int) -> str:
    """Return the letters of a column, `AA` for 27."""
    name = ""
    while number > 0:
        number, letter = divmod(number - 1, _LETTERS)
        name = chr(ord("A") + letter) + name
    return name


def _cells(title: str, text: str) -> Box | None:
    match = _CELLS.fullmatch(text)
    if match is None:
        return None
    column, row, last_column, last_row = (match[name] for name in ("column", "row", "last_column", "last_row"))
    if not match["colon"]:
        if not (column and row):
            return None
        last_column, last_row = column, row
    # A range whose end has a row or a column that its start lacks, such as `A:2`, is left to the service.
    if not (column or row) or not (last_column or last_row) or (last_column and not column) or (last_row and not row):
        return None
    rows = sorted(int(found) for found in (row, last_row) if found)
    columns = sorted(_column_number(found) for found in (column, last_column) if found)
    return Box(
        title,
        first_row=rows[0] if rows else 1,
        last_row=rows[-1] if last_row else None,
        first_column=columns[0] if columns else 1,
        last_column=columns[-1] if last_column else None,
    )


def _column_number(name: str) -> int:
    number = 0
    for letter in name.upper():
        number = number * _LETTERS + ord(letter) - ord("A") + 1
    return number
