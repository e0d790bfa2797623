"""Copies a project's rows from one database into another, and compares the copies."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import psycopg
from cryptography.fernet import InvalidToken, MultiFernet
from psycopg import sql

from jobs.models.guard import RESTORING
from jobs.services.upkeep.partitions import EVENTS
from jobs.states import JobState
from queueops.core.errors import QueueOpsError
from queueops.core.moved_rows import WHOLE, Sort
from queueops.core.sealing import STORED
from queueops.core.sql import load_sql

from .tables import SORTS, WATCHED

Cursor = psycopg.Cursor[tuple[Any, ...]]
Say = Callable[[str], object]

SAID_EVERY = 5.0  # seconds
# Settings under which both databases write a value as the same text.
ALIKE = """
SET LOCAL TimeZone = 'UTC';
SET LOCAL DateStyle = 'ISO';
SET LOCAL IntervalStyle = 'postgres';
SET LOCAL bytea_output = 'hex';
SET LOCAL extra_float_digits = 1;
SET LOCAL statement_timeout = 0;
SET LOCAL idle_in_transaction_session_timeout = 0;
"""
COLUMNS = """
SELECT attname::text FROM pg_attribute
 WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''
 ORDER BY attname
"""
SUM = """
SELECT count(*), coalesce(sum(('x' || left(md5(whole::text), 16))::bit(64)::bigint::numeric), 0)::text
  FROM ({read}) AS whole
"""
# `queueops!stored!<name>!<bytes>!<sha256>`, as jobs/features/results/reference.py writes it.
STORED_RESULTS = """
SELECT count(*), coalesce(sum(split_part(stored, '!', 4)::bigint), 0)::bigint
  FROM (SELECT coalesce(result_text, result::text) AS stored FROM jobs_job
         WHERE project_id = %s AND (octet_length(result_text) < 1000 OR pg_column_size(result) < 1000)) AS job
 WHERE starts_with(stored, '"' || %s)
"""
SECRETS = "SELECT own.{known_by}::text, own.secret FROM {table} AS own WHERE own.secret IS NOT NULL AND {rows}"
OF_CREDENTIALS = "own.id IN (SELECT credential_id FROM tenancy_credential_projects WHERE project_id = {project})"


class MoveError(QueueOpsError):
    """A project cannot be moved."""

    code = "move_failed"
    status = 409


@dataclass(frozen=True, slots=True)
class Ciphers:
    """The ciphers that open secrets here and seal them there; None: there are no keys."""

    here: MultiFernet | None
    there: MultiFernet | None


@dataclass(frozen=True, slots=True)
class Copied:
    """The number of rows of a sort, and a sum over their text that does not depend on their order."""

    rows: int
    sum: str


class Statements:
    """The SQL statements for one sort of one project's rows."""

    def __init__(self, sort: Sort, project_id: str, cursor: Cursor) -> None:
        self.sort = sort
        columns = [name for (name,) in cursor.execute(COLUMNS, [sort.table]).fetchall() if name not in sort.leaves]
        self._words: dict[str, sql.Composable] = {
            "project": sql.Literal(project_id),
            "table": sql.Identifier(sort.table),
            "counts": sql.SQL(", ").join(
                sql.SQL("sum({0})::int AS {0}").format(sql.Identifier(state.value)) for state in JobState
            ),
            "pool": sql.SQL(load_sql("jobs", "fragments/pool_of").strip()),
            "rows": self._sql(sort.rows, project=sql.Literal(project_id)),
            "columns": _listed(columns),
        }
        self.read = self._sql(sort.read, **self._words)
        if sort.read != WHOLE:
            columns = [column.name for column in cursor.execute(self.read + sql.SQL(" LIMIT 0")).description or ()]
            self._words["columns"] = _listed(columns)
        self._words["waiting_columns"] = sql.SQL(", ").join(
            sql.SQL("CASE WHEN finished_at IS NULL THEN 'queued' ELSE status END")
            if name == "status"
            else sql.Identifier(name)
            for name in columns
        )
        if sort.known_by:
            self._words["known_by"] = sql.Identifier(sort.known_by)

    @property
    def write(self) -> list[sql.Composed]:
        return [self._sql(statement, **self._words) for statement in self.sort.write]

    @property
    def ordered(self) -> sql.Composed:
        """Return the SELECT, ordered by id if the other database gives the rows new ids: these keep the order."""
        numbered = "id" in self.sort.leaves and self.sort.read == WHOLE
        return self.read + sql.SQL(" ORDER BY own.id" if numbered else "")

    @property
    def sum(self) -> sql.Composed:
        return sql.SQL(SUM).format(read=self.read)

    @property
    def secrets(self) -> sql.Composed:
        rows = OF_CREDENTIALS if self.sort.name == "credentials" else self.sort.rows
        return self._sql(SECRETS, **{**self._words, "rows": self._sql(rows, project=self._words["project"])})

    @staticmethod
    def _sql(text: str, **words: sql.Composable) -> sql.Composed:
        return sql.SQL(text).format(**words)


def count_rows(here: Cursor, project_id: str) -> dict[str, int]:
    return {sort.name: look(here, Statements(sort, project_id, here)).rows for sort in SORTS}


def count_stored(here: Cursor, project_id: str) -> tuple[int, int]:
    """Return how many results of a project are in the result store, and their bytes."""
    [(count, size)] = here.execute(STORED_RESULTS, [project_id, STORED]).fetchall()
    return count, size


def look(cursor: Cursor, statements: Statements) -> Copied:
    [(rows, total)] = cursor.execute(statements.sum).fetchall()
    return Copied(rows, total)


def look_at_watched(cursor: Cursor, project_id: str, *, lock: bool = False) -> dict[str, list[tuple[Any, ...]]]:
    """
    Return, for each sort of rows that people may change while a project is copied, the number of rows and a checksum.
    The checksums cover secrets in their sealed form.

    Args:
        lock: Lock the rows: wait for changes under way, and keep others from changing them until the transaction ends.
    """
    cursor.execute(ALIKE)
    seen: dict[str, list[tuple[Any, ...]]] = {}
    for sort in WATCHED:
        statements = Statements(sort, project_id, cursor)
        reads = [statements.read, *([statements.secrets] if sort.known_by else [])]
        if lock:
            reads = [read + sql.SQL(" FOR SHARE") for read in reads]
        seen[sort.name] = [row for read in reads for row in cursor.execute(sql.SQL(SUM).format(read=read)).fetchall()]
    return seen


def copy_project(project_id: str, *, here: Cursor, there: Cursor, ciphers: Ciphers, say: Say) -> dict[str, int]:
    """
    Copy all sorts of rows in the transactions of both cursors, and compare each sort on both sides.

    Raises:
        MoveError: The copy differs from the rows here, or no key opens a secret.
    """
    for cursor in (here, there):
        cursor.execute(ALIKE)
    there.execute("SELECT set_config(%s, 'on', true), set_config('queueops.repair', 'on', true)", [RESTORING])
    done: dict[str, int] = {}
    for sort in SORTS:
        statements = Statements(sort, project_id, here)
        wanted = look(here, statements)
        if wanted.rows:
            say(f"copying {wanted.rows:,} {sort.name} ...")
            _copy(statements, wanted.rows, here=here, there=there, ciphers=ciphers, say=say)
        if (found := look(there, statements)) != wanted:
            raise MoveError(
                f"The {sort.name} of {project_id} are not the same there: {wanted.rows:,} here, {found.rows:,} there. "
                "Something there has them already, or knows no limit that they name. Nothing was moved."
            )
        done[sort.name] = wanted.rows
    there.execute("SET CONSTRAINTS ALL IMMEDIATE")  # broken references raise here, before the project is switched
    there.execute("SELECT set_config(%s, '', true), set_config('queueops.repair', '', true)", [RESTORING])
    return done


def _copy(statements: Statements, rows: int, *, here: Cursor, there: Cursor, ciphers: Ciphers, say: Say) -> None:
    """Copy a sort's rows through a temporary table: COPY FROM cannot write to tables with row-level security."""
    there.execute(sql.SQL("CREATE TEMPORARY TABLE given ON COMMIT DROP AS {} WITH NO DATA").format(statements.read))
    told = time.monotonic()
    source = sql.SQL("COPY ({}) TO STDOUT").format(statements.ordered)
    with here.copy(source) as reading, there.copy("COPY given FROM STDIN") as writing:
        copied = 0
        for part in reading:
            writing.write(part)
            copied += bytes(part).count(b"\n")
            if time.monotonic() - told > SAID_EVERY:
                told = time.monotonic()
                say(f"{copied:,} of {rows:,} {statements.sort.name} read ...")
    if statements.sort.known_by:
        there.execute("CREATE TEMPORARY TABLE sealed (name text PRIMARY KEY, secret bytea) ON COMMIT DROP")
        secrets = list(_sealed_anew(statements, here, ciphers))
        there.executemany("INSERT INTO sealed VALUES (%s, %s)", secrets)
    for statement in statements.write:
        there.execute(statement)
    if statements.sort.known_by:
        _compare_secrets(statements, here, there, ciphers)
        there.execute("DROP TABLE sealed")
    there.execute("DROP TABLE given")


def has_secrets(here: Cursor, project_id: str) -> bool:
    sealed = [sort for sort in SORTS if sort.known_by]
    return any(here.execute(Statements(sort, project_id, here).secrets).fetchall() for sort in sealed)


def _sealed_anew(statements: Statements, here: Cursor, ciphers: Ciphers) -> Iterator[tuple[str, bytes]]:
    for name, opened in _opened(statements, here, ciphers.here, "here"):
        if ciphers.there is None:
            raise MoveError("The project has secrets: set QUEUEOPS_TARGET_CREDENTIAL_KEYS.")
        yield name, ciphers.there.encrypt(opened)


def _compare_secrets(statements: Statements, here: Cursor, there: Cursor, ciphers: Ciphers) -> None:
    wanted = dict(_opened(statements, here, ciphers.here, "here"))
    for name, opened in _opened(statements, there, ciphers.there, "there"):
        if wanted.get(name) != opened:
            raise MoveError(f"Another of the {statements.sort.name}, {name}, is there with another secret.")


def _opened(
    statements: Statements, cursor: Cursor, cipher: MultiFernet | None, where: str
) -> Iterator[tuple[str, bytes]]:
    for name, token in cursor.execute(statements.secrets).fetchall():
        if cipher is None:
            raise MoveError(f"No key is set that opens the secret of {name} {where}.")
        try:
            yield name, cipher.decrypt(bytes(token))
        except InvalidToken:
            raise MoveError(f"None of the keys that are set opens the secret of {name} {where}.") from None


def make_parts(project_id: str, *, here: Cursor, there: Cursor) -> None:
    """
    Make the partitions of the log that the project's events need there, so that retention can drop them by day.
    """
    days = here.execute(
        "SELECT DISTINCT (created_at AT TIME ZONE 'UTC')::date FROM jobs_jobevent WHERE project_id = %s", [project_id]
    ).fetchall()
    for (day,) in sorted(days):
        name, first, last = EVENTS.part_of(day)
        [(found,)] = there.execute(
            "SELECT to_regclass(%s) IS NOT NULL OR to_regclass(%s) IS NOT NULL",
            [
                name,
                f"{name}_restored",
            ],
        ).fetchall()
        if found:
            continue
        part, table = sql.Identifier(name), sql.Identifier(EVENTS.table)
        # If the default partition already has rows of the day, no partition for the day can be attached: the default
        # partition then takes the project's rows, too.
        with suppress(psycopg.errors.CheckViolation), there.connection.transaction():
            there.execute("SET LOCAL lock_timeout = '10s'")
            there.execute(sql.SQL("CREATE TABLE {} (LIKE {} INCLUDING DEFAULTS)").format(part, table))
            there.execute(
                sql.SQL("ALTER TABLE {} ATTACH PARTITION {} FOR VALUES FROM ({}) TO ({})").format(
                    table, part, sql.Literal(first), sql.Literal(last)
                )
            )


def _listed(names: list[str]) -> sql.Composed:
    return sql.SQL(", ").join(map(sql.Identifier, names))
