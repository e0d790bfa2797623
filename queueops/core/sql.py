"""
Hot and locking SQL lives in files, `sql/<verb>_<noun>.sql` of an app or of one of its features.

Text that several statements share is a fragment in `sql/fragments/<name>.sql`, which writes columns as `job.column`. A
statement includes it as `{{name}}`, with bare columns, or as `{{name parked}}`, with columns of `parked`. Fragments
that follow from an enumeration are made by code and registered with `define_fragments`. The clocks of `clock.py` are
fragments of every app. A variant of a statement uses the fragment `name@variant`, where there is one, instead of
`name`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, partial
from importlib import import_module
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from django.db import connection
from psycopg.rows import RowFactory, RowMaker, class_row, tuple_row

from queueops.core.clock import CLOCKS
from queueops.core.postgres.local_settings import of_the_block

Row = TypeVar("Row")

_written: dict[tuple[str, str], str] = {}


def define_fragments(package: str, texts: Mapping[str, str]) -> None:
    """Register fragments that code makes for an app's statements. An app calls this while its models are loaded."""
    _written.update({(package, name): text for name, text in texts.items()})


@cache
def load_sql(package: str, name: str, variant: str = "") -> str:
    """
    Return the statement of `sql/<name>.sql` in the app without its header comment, fragments filled in.

    The header is for people; leaving it out keeps the text that PostgreSQL parses, logs and
    shows in `pg_stat_activity` to the statement itself.

    Args:
        package: Dotted name of the app, `jobs`.
        name: File name without its suffix, `claim_jobs`.
        variant: Fragments of this variant replace the plain ones.
    """
    text = _without_header(package, name)
    while "{{" in text:  # a fragment may include others
        text = re.sub(
            r"\{\{(\w+) ?(\w*)\}\}",
            lambda found: _with_columns_of(found[2], _fragment(package, found[1], variant)),
            text,
        )
    return text


def _with_columns_of(table: str, fragment: str) -> str:
    """Return a fragment with columns of a table; included fragments that name no table get the same table."""
    text = re.sub(r"\bjob\.", f"{table}." if table else "", fragment)
    return re.sub(r"\{\{(\w+)\}\}", rf"{{{{\1 {table}}}}}", text) if table else text


def _fragment(package: str, name: str, variant: str) -> str:
    written = _written.get((package, f"{name}@{variant}"), _written.get((package, name)))
    if written is None:
        written = CLOCKS.get(name)
    return _without_header(package, f"fragments/{name}").strip() if written is None else written


@cache
def _without_header(package: str, name: str) -> str:
    lines = _files(package)[name].read_text(encoding="utf-8").splitlines()
    while lines and (not lines[0].strip() or lines[0].startswith("--")):
        lines.pop(0)
    return "\n".join(lines).strip() + "\n"


@cache
def _files(package: str) -> Mapping[str, Path]:
    """Return statement name -> file of all folders `sql` of an app; a fragment is named `fragments/<name>`."""
    [root] = import_module(package).__path__
    folders = [folder for folder in Path(root).rglob("sql") if folder.is_dir()]
    found = [
        (str(file.relative_to(folder).with_suffix("")), file) for folder in folders for file in folder.rglob("*.sql")
    ]
    named = dict(found)
    if len(named) < len(found):
        raise ValueError(f"{package} has two statements of one name")
    return named


def read_statements(package: str) -> None:
    """
    Read every statement of an app now. An upgrade may replace the files while the process runs: its code would then
    load statements of another version at their first use.
    """
    for name in _files(package):
        _without_header(package, name)


@contextmanager
def hot_cursor() -> Iterator[psycopg.Cursor[tuple[Any, ...]]]:
    """
    Open a cursor on Django's connection that binds parameters on the server, so that hot statements are planned once.

    Django's own cursors write the parameters into the text. Errors are raised as django.db's.
    """
    connection.ensure_connection()
    with of_the_block(connection), connection.wrap_database_errors, psycopg.Cursor(connection.connection) as cursor:
        yield cursor


def run_sql(package: str, name: str, parameters: Mapping[str, Any], *, variant: str = "") -> list[tuple[Any, ...]]:
    """Run one statement of the app in the caller's transaction and return its rows."""
    return _run(package, name, parameters, tuple_row, variant=variant)


def run_sql_as(
    row: type[Row],
    package: str,
    name: str,
    parameters: Mapping[str, Any],
    *,
    variant: str = "",
    binary: bool = False,
) -> list[Row]:
    """
    Do what `run_sql` does, and make a `row` of each row, by the columns' names.

    Args:
        binary: Have the server send values in binary, which are read faster than text. JSON then comes as objects.
    """
    return _run(package, name, parameters, partial(_by_name, row), variant=variant, binary=binary)


def _by_name(row: type[Row], cursor: Any) -> RowMaker[Row]:
    """Do what psycopg's class_row does; for a named tuple, without making a dictionary for each row."""
    names = [column.name for column in cursor.description or ()]
    fields = getattr(row, "_fields", ())[: len(names)]
    if len(names) == 1 or set(fields) != set(names):
        return class_row(row)(cursor)
    pick = itemgetter(*map(names.index, fields))
    return lambda values: row(*pick(values))


def _run(
    package: str,
    name: str,
    parameters: Mapping[str, Any],
    factory: RowFactory[Row],
    *,
    variant: str,
    binary: bool = False,
) -> list[Row]:
    statement, names = _numbered(package, name, variant)
    connection.ensure_connection()
    with (
        of_the_block(connection),
        connection.wrap_database_errors,
        psycopg.RawCursor(connection.connection, row_factory=factory) as cursor,
    ):
        cursor.execute(statement, [parameters[one] for one in names], binary=binary)
        return cursor.fetchall()


@cache
def _numbered(package: str, name: str, variant: str) -> tuple[bytes, tuple[str, ...]]:
    """
    Return a statement with $1, $2 ..., and the parameters' names. psycopg itself would rewrite a statement of over 4 kB
    at each run.
    """
    names: dict[str, int] = {}
    text = re.sub(
        r"%(?:%|\((\w+)\)s)",
        lambda found: f"${names.setdefault(found[1], len(names) + 1)}" if found[1] else "%",
        load_sql(package, name, variant),
    )
    return text.encode(), tuple(names)


def nullable(values: Sequence[Any]) -> list[Any] | None:
    """
    Return an array parameter, or null if all entries are null. An array of nulls would cost as much as one of values,
    and `unnest` pads a null array with nulls.
    """
    return None if _is_nothing(values) else list(values)


def plain_array(values: Sequence[Any]) -> str | None:
    """
    Return an array parameter of numbers or UUIDs as PostgreSQL writes it; null if every entry is null.

    psycopg would examine each element for characters that need quoting, which numbers and UUIDs never have.
    """
    if _is_nothing(values):
        return None
    return "{" + ",".join(["NULL" if value is None else str(value) for value in values]) + "}"


def text_array(values: Sequence[str | None]) -> str | None:
    """Return an array parameter of any texts as PostgreSQL writes it; see `plain_array`."""
    if _is_nothing(values):
        return None
    return "{" + ",".join(["NULL" if value is None else f'"{_escaped(value)}"' for value in values]) + "}"


def _is_nothing(values: Sequence[Any]) -> bool:
    """Whether every entry is null; `count` takes a tenth of a generator's time for thousands of entries."""
    return not values or (values[0] is None and values.count(None) == len(values))


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')
