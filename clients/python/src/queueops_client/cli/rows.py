"""Reads rows from a file or folder, fills a prompt from each, and writes rows as CSV, JSON lines or Parquet."""

from __future__ import annotations

import csv
import json
import os
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from queueops_client.cli.files import BadFile, opened, parsed, table_of

Row = Mapping[str, Any]

# The last four are wide signs, which a Japanese spreadsheet reads as the first four (OWASP, CSV injection).
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
ENDINGS = (".csv", ".tsv", ".ndjson", ".jsonl", ".parquet")
FOLDER_COLUMNS = ("file", "text")


def rows_of(name: str) -> list[tuple[str, Row]]:
    """
    Read the rows of a CSV or Parquet file, or of a file with a JSON object a line. A folder's rows are its files, with
    `file` and `text`.

    Returns:
        Each row with its place, which error messages name.

    Raises:
        BadFile
    """
    if Path(name).is_dir():
        rows = list(_files(Path(name)))
    elif _is_parquet(Path(name)):
        rows = _rows_of_parquet(name)
    else:
        with opened(name) as file:
            if Path(name).suffix.lower() in {".csv", ".tsv"}:
                rows = [(told[0], _named(*told[1:])) for told in table_of(file)]
            else:
                lines = [(f"Line {number}", line) for number, line in enumerate(file, 1) if line.strip()]
                rows = [(place, _object(line, place)) for place, line in lines]
    if not rows:
        raise BadFile(f"{name} has no rows.")
    return rows


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() == ".parquet"


def _pyarrow() -> Any:
    """
    Raises:
        BadFile: The package pyarrow is not installed.
    """
    try:
        import_module("pyarrow.parquet")
    except ImportError:
        raise BadFile("Parquet takes pyarrow: pip install 'queueops-client[parquet]'.") from None
    return import_module("pyarrow")


def _rows_of_parquet(name: str) -> list[tuple[str, Row]]:
    arrow = _pyarrow()
    try:
        rows = arrow.parquet.read_table(name).to_pylist()
    except (OSError, arrow.ArrowException) as error:
        raise BadFile(f"{name}: {error}") from error
    return [(f"Row {number}", row) for number, row in enumerate(rows, 1)]


def _to_parquet(rows: Sequence[Row], columns: Sequence[str], name: str) -> None:
    """Write rows. A column with values of several types is written as text, in which other values are JSON."""
    arrow = _pyarrow()
    arrays = []
    for column in columns:
        values = [row.get(column) for row in rows]
        try:
            arrays.append(arrow.array(values))
        except (arrow.ArrowException, TypeError, OverflowError):
            arrays.append(arrow.array([None if value is None else cell_of(value) for value in values]))
    arrow.parquet.write_table(arrow.table(arrays, names=list(columns)), name)


def _named(header: Sequence[str], cells: Sequence[str]) -> Row:
    twice = next((one for one in header if header.count(one) > 1), None)
    if twice is not None:
        raise BadFile(f"Two columns are named {twice!r}." if twice else "Two columns have no name.")
    padded = [*cells, *[""] * (len(header) - len(cells))]
    return dict(zip(header, padded, strict=False))


def _object(line: str, place: str) -> Row:
    row = parsed(line, place)
    if not isinstance(row, dict):
        raise BadFile(f"{place}: a row is a JSON object.")
    return row


def _files(folder: Path) -> Iterator[tuple[str, Row]]:
    for path in sorted(folder.iterdir()):
        if path.is_file() and not path.name.startswith("."):
            with opened(str(path)) as file:
                yield path.name, dict(zip(FOLDER_COLUMNS, (path.name, file.read()), strict=True))


class Template:
    """
    A text with columns: `{name}` stands for a row's value, `{{` and `}}` for braces.

    Raises:
        BadFile: The template cannot be read.
    """

    def __init__(self, text: str) -> None:
        try:
            pieces = list(string.Formatter().parse(text))
        except ValueError as error:
            raise BadFile(f"--prompt: {error}; write {{{{ and }}}} for braces that are text.") from error
        for _, name, spec, conversion in pieces:
            if name == "" or spec or conversion:
                raise BadFile("--prompt: {name} stands for a column; write {{ and }} for braces that are text.")
        self._pieces = [(before, name) for before, name, _, _ in pieces]

    def fill(self, row: Row, place: str) -> str:
        """
        Raises:
            BadFile: The row has no such column.
        """
        return "".join(before + ("" if name is None else _text(row, name, place)) for before, name in self._pieces)


def _text(row: Row, name: str, place: str) -> str:
    if name not in row:
        raise BadFile(f"{place} has no column {name!r}; it has {', '.join(map(repr, row))}.")
    value = row[name]
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def cell_at(result: Any, path: str) -> Any:
    """Return the value at a path of a result, such as `data.total`; None: there is none."""
    for step in path.split("."):
        result = result.get(step) if isinstance(result, dict) else None
    return result


@contextmanager
def written(name: str, columns: Sequence[str]) -> Iterator[Callable[[Row], None]]:
    """Write rows to a file, which appears once all rows are written; its name says in which form."""
    target = Path(name)
    part = target.with_name(f".{target.name}.part")
    try:
        if _is_parquet(target):
            rows: list[Row] = []
            yield rows.append
            _to_parquet(rows, columns, str(part))
            part.replace(target)
            return
        # A row's own half of a surrogate pair is written as JSON's escape. It must not cost the answers to all rows.
        with part.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
            if target.suffix.lower() in {".csv", ".tsv"}:
                yield csv_to(file, columns, delimiter="\t" if target.suffix.lower() == ".tsv" else ",")
            else:
                yield lambda row: print(json.dumps(dict(row), ensure_ascii=False, default=str), file=file)
        part.replace(target)
    except OSError as error:
        raise BadFile(f"{name}: {error.strerror}") from error
    finally:
        part.unlink(missing_ok=True)


def csv_to(file: IO[str], columns: Sequence[str], *, delimiter: str = ",") -> Callable[[Row], None]:
    """Write a header; return a function that writes a row, in which values other than texts are JSON."""
    writer = csv.DictWriter(file, columns, delimiter=delimiter)
    writer.writeheader()

    def write(row: Row) -> None:
        writer.writerow({column: cell_of(row.get(column)) for column in columns})

    return write


def refuse_unwritable(name: str) -> None:
    """
    Raises:
        BadFile: The file could not be written in the end, or its name fits no form.
    """
    if Path(name).suffix.lower() not in ENDINGS:
        raise BadFile(f"{name}: its name says in which form it is written: {', '.join(ENDINGS)}.")
    folder = Path(name).parent
    if not folder.is_dir() or not os.access(folder, os.W_OK) or Path(name).is_dir():
        raise BadFile(f"{name} cannot be written.")
    if _is_parquet(Path(name)):
        _pyarrow()


def cell_of(value: Any) -> str:
    """Return a value as text: empty for None, and JSON if it is not a text."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def no_formula(value: Any) -> Any:
    """Return a foreign value; a text that a spreadsheet would run as a formula gets an apostrophe before it."""
    if not isinstance(value, str) or not value.startswith(FORMULA_STARTS):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{value}"
    return value
