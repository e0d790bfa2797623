"""
Backs the database up, and restores it: restored rows and definitions are compared with those backed up.

A dump by itself is no backup. Row-level security also confines the login role, and would make pg_restore leave out
foreign keys. Therefore the foreign keys are restored before the policies. Jobs that ran after the backup would run
again. Therefore the transaction that restores also pauses everything.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, LiteralString, Self

import psycopg
from django.db import Error, connection
from psycopg import sql

from jobs.services.operate.epochs import RESTORED_REASON, declare_restored
from queueops.audit import trail
from queueops.core.database import connect_directly
from queueops.core.embedded.host import client_programs
from queueops.core.errors import QueueOpsError
from queueops.core.postgres.conditions import in_a_line
from queueops.core.stores.disk import to_disk
from queueops.tenancy.database_roles import make_roles

FORMAT = 1
DUMP = "database.dump"
MANIFEST = "manifest.json"
CHUNK = 1 << 20
SAID_EVERY = 5.0  # seconds
MEGABYTE = 1_000_000
LAST_LINES = 5  # lines of a PostgreSQL program's error output that are shown
ACTOR = "system:restore"

# Two things may differ between a dump and its copy, and are not compared. Constraints of NOT NULL: older servers do not
# list them. Values of sequences: they change while a dump is taken.
TABLES = """
SELECT relname::text
  FROM pg_class
 WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
 ORDER BY relname
"""
STRUCTURE: dict[str, LiteralString] = {
    "constraints": """
        SELECT concat_ws(' ', conrelid::regclass, conname, pg_get_constraintdef(oid), convalidated) FROM pg_constraint
         WHERE connamespace = 'public'::regnamespace AND contype <> 'n'""",
    "indexes": "SELECT indexdef FROM pg_indexes WHERE schemaname = 'public'",
    "policies": """
        SELECT concat_ws(' ', tablename, policyname, permissive, roles, cmd, qual, with_check) FROM pg_policies
         WHERE schemaname = 'public'""",
    "tables with row security": """
        SELECT concat_ws(' ', relname, relrowsecurity, relforcerowsecurity) FROM pg_class
         WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')""",
    "triggers": "SELECT pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal",
    "grants": r"""
        SELECT concat_ws(' ', table_name, grantee, privilege_type) FROM information_schema.role_table_grants
         WHERE table_schema = 'public' AND grantee LIKE 'queueops\_%'""",
    "sequences": "SELECT sequencename FROM pg_sequences WHERE schemaname = 'public'",
}
# PostgreSQL writes casts in another form after a restore: (ARRAY['a'::varchar])::text[] becomes ARRAY['a'::text].
WRITTEN_ANEW = re.compile(r"[()\s]|::(text|character varying)(\[\])?")
MOMENT = """
SELECT pg_export_snapshot(), to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
       current_setting('server_version')
"""
UNDER_WAY = "SELECT count(*) FROM jobs_job WHERE lease_expires_at IS NOT NULL"
PAUSE = f"""
SET row_security = on;
INSERT INTO public.jobs_pauseswitch (scope, key, reason, paused_by)
VALUES ('global', '', '{RESTORED_REASON}', '{ACTOR}')
    ON CONFLICT DO NOTHING;  -- its table may be that of an earlier version
"""  # noqa: S608 - our own words
# Entries of a dump that must come after the foreign keys: checking a key reads the tables as their owner, whom
# row-level security would confine.
LAST_ENTRIES = re.compile(r"^\d+; \d+ \d+ (ROW SECURITY|POLICY) ")
MAKES_PUBLIC = " SCHEMA - public "  # this entry fails if the schema public exists, as in every new database
# Our pg_restore writes this setting; servers before PostgreSQL 17 refuse it.
NEWER_SETTING = b"SET transaction_timeout = 0;\n"
KNOWS_NEWER_SETTING = 170_000  # PostgreSQL's version
HEAD_LINES = 100  # the first lines of a script, which hold its settings

Say = Callable[[str], object]
Cursor = psycopg.Cursor[tuple[Any, ...]]


class BackupError(QueueOpsError):
    """A backup or a restore cannot be made, or is not what it should be."""

    code = "backup_failed"
    status = 500


@dataclass(frozen=True, slots=True)
class Manifest:
    """
    The description of a backup.

    Attributes:
        taken_at: The moment of its snapshot, ISO 8601 in UTC.
        size: The dump's size in bytes.
        rows: How many rows each table has.
        structure: How many definitions of each sort there are, and a checksum over them.
        under_way: How many jobs were running. The backup cannot know whether their calls went through.
    """

    format: int
    taken_at: str
    postgresql: str
    size: int
    sha256: str
    rows: dict[str, int]
    structure: dict[str, list[Any]]
    under_way: int

    @property
    def row_count(self) -> int:
        return sum(self.rows.values())


def back_up(directory: Path, say: Say) -> Manifest:
    """
    Write a backup of one moment into a new directory, and read it back to check that it holds every row.

    Jobs go on meanwhile. An interrupted backup leaves a directory `.partial`, which the next try replaces.

    Raises:
        BackupError: The directory exists, or the dump fails or lacks something.
    """
    with _in_words():
        exists = directory.exists()
    if exists:
        raise BackupError(f"{directory} exists. Name a new directory: a backup is never overwritten.")
    partial = directory.with_name(directory.name + ".partial")
    dump = partial / DUMP
    with _in_words(), _one_moment() as cursor:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        partial.chmod(0o700)  # it holds payloads and sealed credentials
        snapshot, taken_at, version = _row(cursor, MOMENT)
        say("counting ...")
        rows, structure, [under_way] = _rows(cursor), _structure(cursor), _row(cursor, UNDER_WAY)
        say(f"writing {sum(rows.values()):,} rows of {len(rows):,} tables ...")
        dump.touch(mode=0o600)  # the file, too: people copy it out of the directory
        options = ["--format=custom", "--compress=1", "--no-owner", "--enable-row-security"]
        with _Program("pg_dump", *options, f"--snapshot={snapshot}", f"--file={dump}") as program:
            program.end(lambda: say(f"{_megabytes(dump.stat().st_size)} written ..."))
        size = dump.stat().st_size
        say(f"reading {_megabytes(size)} back ...")
        _compare("rows", rows, _rows_of(dump))
        manifest = Manifest(FORMAT, taken_at, version, size, _checksum(dump), rows, structure, under_way)
        (partial / MANIFEST).touch(mode=0o600)
        (partial / MANIFEST).write_text(json.dumps(asdict(manifest), indent=1))
        for path in (dump, partial / MANIFEST, partial):
            to_disk(path)
        partial.rename(directory)
        to_disk(directory.parent)
    return manifest


def restore(directory: Path, say: Say) -> Manifest:
    """
    Restore a backup into an empty database, with everything paused, and compare it with the manifest.

    A failure before the comparison leaves the database empty.

    Raises:
        BackupError: The backup is missing or damaged, the database is not empty, or the restored database differs.
        RolesMissing: The database lacks roles; see `make_roles`.
    """
    with _in_words():
        manifest = _read_manifest(directory)
        dump = directory / DUMP
        say("checking the backup ...")
        if dump.stat().st_size != manifest.size or _checksum(dump) != manifest.sha256:
            raise BackupError(f"{dump} is damaged: it is not the file that was written.")
        with _one_moment() as cursor:
            tables = _column(cursor, TABLES)
        if tables:
            raise BackupError(
                f"The database has {len(tables)} tables. Restore into an empty one: make it, and name it in "
                "DATABASE_URL; or, with the embedded PostgreSQL, a new directory in QUEUEOPS_DATA_DIR."
            )
        make_roles()
        say(f"restoring {manifest.row_count:,} rows as of {manifest.taken_at} ...")
        _load(dump, say)
        say("comparing ...")
        with _one_moment() as cursor:
            rows, structure = _rows(cursor), _structure(cursor)
        rows["jobs_pauseswitch"] = manifest.rows.get("jobs_pauseswitch", 0)  # PAUSE has added a row
        _compare("rows", manifest.rows, rows)
        _compare("definitions", manifest.structure, structure)
    if "jobs_epoch" in rows:  # if the backup is older than this table, migrate makes the first epoch
        with _in_words():
            declare_restored(actor=ACTOR, every=True)
    trail.record(
        actor=ACTOR,
        action="restore",
        target="database",
        after={"taken_at": manifest.taken_at, "under_way": manifest.under_way, "paused": True},
        moved=manifest.row_count,
        reason=RESTORED_REASON,
    )
    return manifest


def _load(dump: Path, say: Say) -> None:
    """Restore and pause in one transaction: no worker can see the jobs before the pause."""
    with connect_directly() as alone:
        keeps_setting = alone.info.server_version >= KNOWS_NEWER_SETTING
    with (
        _ordered(dump) as order,
        _Program("pg_restore", "--no-owner", f"--use-list={order}", "--file=-", str(dump)) as script,
        _Program(
            "psql", "--no-psqlrc", "--quiet", "--single-transaction", "--set=ON_ERROR_STOP=1", "--file=-", given=True
        ) as shell,
    ):
        try:
            _pour(script.output, shell.input, say, keeps_setting=keeps_setting)
            script.end()  # raises if pg_restore failed: psql must not commit an incomplete restore
            shell.input.write(PAUSE.encode())
            shell.input.close()
        except BrokenPipeError:
            pass  # psql has ended; `shell.end` reports why
        try:
            shell.end()
        except BackupError as error:
            raise BackupError(f"The database refused the backup, and is empty as before. {error.message}") from None


@contextmanager
def _ordered(dump: Path) -> Iterator[str]:
    """Write the list of the dump's entries for pg_restore, in the order to restore them; yields the file's name."""
    with _Program("pg_restore", "--list", str(dump)) as program:
        entries = program.output.read().decode().splitlines(keepends=True)
        program.end()
    entries = [line for line in entries if MAKES_PUBLIC not in line]
    entries.sort(key=lambda line: bool(LAST_ENTRIES.match(line)))
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
        file.writelines(entries)
        file.flush()
        yield file.name


def _pour(source: IO[bytes], sink: IO[bytes], say: Say, *, keeps_setting: bool) -> None:
    for _ in range(HEAD_LINES):
        line = source.readline()
        if keeps_setting or line != NEWER_SETTING:
            sink.write(line)
    poured, told = 0, time.monotonic()
    while chunk := source.read(CHUNK):
        sink.write(chunk)
        poured += len(chunk)
        if time.monotonic() - told > SAID_EVERY:
            told = time.monotonic()
            say(f"{_megabytes(poured)} restored ...")


def _rows_of(dump: Path) -> dict[str, int]:
    """Return how many rows of each table the dump holds. Reads the whole dump."""
    rows: dict[str, int] = {}
    table = ""
    with _Program("pg_restore", "--data-only", "--file=-", str(dump)) as script:
        for line in script.output:
            if not table:
                if line.startswith(b"COPY public."):
                    table = line.split()[1].decode().removeprefix("public.").strip('"')
                    rows[table] = 0
            elif line == b"\\.\n":
                table = ""
            else:
                rows[table] += 1
        script.end()
    return rows


def _read_manifest(directory: Path) -> Manifest:
    path = directory / MANIFEST
    try:
        given = json.loads(path.read_text())
        known = given["format"]
        if known != FORMAT:
            raise BackupError(f"{path} says format {known}; this version restores format {FORMAT}.")
        return Manifest(**given)
    except FileNotFoundError:
        raise BackupError(f"There is no backup in {directory}: it has no {MANIFEST}.") from None
    except (ValueError, TypeError, KeyError):
        raise BackupError(f"{path} is damaged: it is not what manage.py backup writes.") from None


@contextmanager
def _one_moment() -> Iterator[Cursor]:
    """Open a transaction that sees all rows as of one moment, on a connection of its own."""
    with closing(connect_directly(application_name="queueops backup")) as alone, alone.transaction():
        cursor = alone.cursor()
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        cursor.execute("SET LOCAL statement_timeout = 0")
        yield cursor


def _rows(cursor: Cursor) -> dict[str, int]:
    statement = sql.SQL("SELECT count(*) FROM ONLY {}")
    rows = {}
    for table in _column(cursor, TABLES):
        [rows[table]] = _row(cursor, statement.format(sql.Identifier(table)))
    return rows


def _structure(cursor: Cursor) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for sort, statement in STRUCTURE.items():
        lines = sorted(WRITTEN_ANEW.sub("", line) for line in _column(cursor, statement))
        found[sort] = [len(lines), hashlib.sha256("\n".join(lines).encode()).hexdigest()]
    return found


def _row(cursor: Cursor, statement: LiteralString | sql.Composed) -> tuple[Any, ...]:
    [row] = cursor.execute(statement).fetchall()
    return row


def _column(cursor: Cursor, statement: LiteralString) -> list[str]:
    return [value for (value,) in cursor.execute(statement).fetchall()]


def _compare(what: str, wanted: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    def shown(value: Any) -> str:
        return "none" if value is None else f"{value if isinstance(value, int) else value[0]:,}"

    differing = [
        f"{name}: {shown(wanted.get(name))} were there, {shown(found.get(name))} are here"
        for name in sorted({*wanted, *found})
        if wanted.get(name) != found.get(name)
    ]
    if differing:
        raise BackupError(f"The {what} are not those that were there; do not use this. " + "; ".join(differing))


class _Program:
    """
    A running PostgreSQL client program, connected to our database. The end of the `with` block kills it.

    Args:
        given: Whether we write to its input; otherwise we read its output.
    """

    def __init__(self, name: str, *arguments: str, given: bool = False) -> None:
        self._name = name
        # A file, not a pipe: a full pipe that nobody reads would block the program.
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the block
        self._process = subprocess.Popen(
            [client_programs() / name, *arguments],
            stdin=subprocess.PIPE if given else subprocess.DEVNULL,
            stdout=subprocess.DEVNULL if given else subprocess.PIPE,
            stderr=self._complaints,
            env=_environ(),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        for file in (self._process.stdin, self._process.stdout, self._complaints):
            if file is not None:
                with suppress(BrokenPipeError):  # input that the program has not read
                    file.close()

    @property
    def input(self) -> IO[bytes]:
        return self._process.stdin  # type: ignore[return-value]

    @property
    def output(self) -> IO[bytes]:
        return self._process.stdout  # type: ignore[return-value]

    def end(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """
        Wait until the program ends.

        Raises:
            BackupError: The program failed.
        """
        while True:
            try:
                failed = self._process.wait(SAID_EVERY)
                break
            except subprocess.TimeoutExpired:
                meanwhile()
        if failed:
            self._complaints.seek(0)
            lines = self._complaints.read().decode(errors="replace").splitlines()[-LAST_LINES:]
            raise BackupError(f"{self._name} failed: {' '.join(lines)}")


def _environ() -> dict[str, str]:
    """
    Return an environment with our database's address and password: everybody on the host could see arguments.
    """
    parameters = connection.get_connection_params()
    names = {"dbname": "DATABASE"} | {
        name: name.replace("_", "").upper()
        for name in (
            *("host", "port", "user", "password", "sslmode", "sslrootcert", "sslcert", "sslkey"),
            "target_session_attrs",
        )
    }
    given = {f"PG{ours}": str(parameters[name]) for name, ours in names.items() if parameters.get(name)}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return {**inherited, **given, "PGAPPNAME": "queueops backup", "PGOPTIONS": "-c statement_timeout=0"}


@contextmanager
def _in_words() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BackupError(f"{error.filename}: {error.strerror}." if error.filename else str(error)) from error
    except (psycopg.Error, Error) as error:
        raise BackupError(in_a_line(error)) from error


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _megabytes(size: int) -> str:
    return f"{size / MEGABYTE:,.1f} MB"
