"""Ranges in A1 notation."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_QUOTED = re.compile(r"'((?:[^']|'')+)'(?:!(.+))?")
_CELL = r"\$?([A-Za-z]{1,3})?\$?([1-9][0-9]{0,7})?"
_CELLS = re.compile(f"{_CELL}(:)?{_CELL}")
_PLAIN_TITLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class UnparsableRange(Exception):
    """The text is no range, or names a sheet that does not exist."""


@dataclass(frozen=True, slots=True)
class GridRange:
    """Rows and columns from 0, ends exclusive; None: the range ends where the grid ends."""

    first_row: int = 0
    first_column: int = 0
    last_row: int | None = None
    last_column: int | None = None

    @property
    def is_cell(self) -> bool:
        return (self.last_row, self.last_column) == (self.first_row + 1, self.first_column + 1)

    def overlaps(self, other: "GridRange") -> bool:
        return (
            (other.last_row is None or self.first_row < other.last_row)
            and (self.last_row is None or other.first_row < self.last_row)
            and (other.last_column is None or self.first_column < other.last_column)
            and (self.last_column is None or other.first_column < self.last_column)
        )


def parse(text: str, titles: Sequence[str]) -> tuple[str, GridRange]:
    """
    Return the sheet's title and its cells; a range without a title is in the first of `titles`.

    Raises:
        UnparsableRange: The text is no range.
    """
    quoted = _QUOTED.fullmatch(text)
    if quoted:
        title, cells = quoted[1].replace("''", "'"), quoted[2]
    elif "!" in text:
        title, cells = text.rsplit("!", 1)
    elif text in titles:
        title, cells = text, None
    else:
        title, cells = titles[0], text
    box = GridRange() if cells is None else _box(cells)
    if box is None or title not in titles:
        raise UnparsableRange(text)
    return title, box


def render(title: str, box: GridRange) -> str:
    """Return the range as the service writes it; both ends of the box are known."""
    first = f"{column_name(box.first_column)}{box.first_row + 1}"
    last = f"{column_name((box.last_column or 1) - 1)}{box.last_row}"
    return f"{quoted_title(title)}!{first if box.is_cell else f'{first}:{last}'}"


def quoted_title(title: str) -> str:
    return title if _PLAIN_TITLE.fullmatch(title) else "'{}'".format(title.replace("'", "''"))


def column_name(index: int) -> str:
    name = ""
    number = index + 1
    while number:
        number, letter = divmod(number - 1, 26)
        name = chr(ord("A") + letter) + name
    return name


def _box(text: str) -> GridRange | None:
    match = _CELLS.fullmatch(text)
    if match is None:
        return None
    column, row, colon, other_column, other_row = match.groups()
    if not colon:
        other_column, other_row = column, row
        if not (column and row):
            return None
    if not (column or row) or not (other_column or other_row):
        return None
    if (other_column and not column) or (other_row and not row):
        return None
    rows = [int(found) for found in (row, other_row) if found]
    columns = [_column_number(found) for found in (column, other_column) if found]
    return GridRange(
        first_row=min(rows) - 1 if rows else 0,
        first_column=min(columns) - 1 if columns else 0,
        last_row=max(rows) if rows and other_row else None,
        last_column=max(columns) if columns and other_column else None,
    )


def _column_number(name: str) -> int:
    number = 0
    for letter in name.upper():
        number = number * 26 + ord(letter) - ord("A") + 1
    return number
