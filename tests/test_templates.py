"""The migrated server that is kept between runs is that of this code, and whole."""

from __future__ import annotations

import re
import tempfile
import threading
from pathlib import Path

import psycopg
import pytest
from django.db import connection

from jobs.models import Epoch
from tests.support import templates
from tests.support.templates import ROOT, copy_database, imported_by, kept, key_of, migrations


def make(directory: Path) -> None:
    place = directory / "postgresql"
    place.mkdir()
    (place / "made").write_text("anew")


def adapt(directory: Path) -> None:
    (directory / "postgresql" / "made").write_text("adapted")


def refused(directory: Path) -> None:
    raise AssertionError("it was there")


def made(directory: Path, base: str, detail: str, **by: object) -> str:
    with kept(directory, base, detail, **{"make": make, "adapt": adapt, **by}) as found:  # type: ignore[arg-type]
        return (found / "postgresql" / "made").read_text()


def names(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()} - {"lock"}


def test_what_is_kept_is_taken_and_what_differs_in_its_rows_alone_is_adapted(tmp_path):
    assert made(tmp_path, "a", "1") == "anew"
    assert made(tmp_path, "a", "1", make=refused, adapt=refused) == "anew"
    assert made(tmp_path, "a", "2", make=refused) == "adapted"
    assert made(tmp_path, "b", "2", adapt=refused) == "anew"
    assert names(tmp_path) == {"a-2", "b-2"}


def test_the_ones_that_were_not_used_for_longest_are_removed(tmp_path):
    for base in "abcad":
        made(tmp_path, base, "1")
    assert names(tmp_path) == {"a-1", "c-1", "d-1"}


def test_one_whose_making_was_broken_off_is_never_used(tmp_path):
    def broken_off(directory: Path) -> None:
        make(directory)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        made(tmp_path, "a", "1", make=broken_off)
    [half] = names(tmp_path)
    assert half.startswith("half-")
    assert made(tmp_path, "a", "1") == "anew"
    assert names(tmp_path) == {"a-1"}


def test_two_workers_make_one(tmp_path):
    times, begin = [], threading.Barrier(2)

    def slowly(directory: Path) -> None:
        times.append(1)
        make(directory)

    def work() -> None:
        begin.wait()
        made(tmp_path, "a", "1", make=slowly)

    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(times) == 1


def test_a_directory_of_somebody_else_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    assert templates.home().is_relative_to(tmp_path)
    place = templates.home()
    place.rmdir()
    place.symlink_to(tmp_path)
    with pytest.raises(PermissionError, match="is somebody else's"):
        templates.home()


PROJECT = {
    "jobs/migrations/0001_initial.py": "from queueops.tenancy.row_security import protect",
    "jobs/models/__init__.py": "",
    "jobs/states.py": "import uuid",
    "jobs/cluster.py": "from django_q import cluster",
    "queueops/tenancy/__init__.py": "",
    "queueops/tenancy/row_security.py": "def protect():\n    from . import roles",
    "queueops/tenancy/roles.py": "from jobs import states",
}


def test_a_change_of_a_migration_or_of_what_it_builds_on_gives_another_hash(tmp_path):
    def found() -> str:
        return key_of(imported_by(tmp_path, migrations(tmp_path)))

    for name, text in PROJECT.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    before, changes = found(), set()
    for name, text in PROJECT.items():
        (tmp_path / name).write_text(f"{text}\n")
        if found() != before:
            changes.add(name)
        (tmp_path / name).write_text(text)
    assert changes == PROJECT.keys() - {"jobs/models/__init__.py", "jobs/cluster.py"}
    (tmp_path / "jobs/migrations/0002_more.py").touch()
    assert found() != before
    real = {str(path.relative_to(ROOT)) for path in imported_by(ROOT, migrations(ROOT))}
    assert real > {"jobs/migrations/0001_initial.py", "queueops/tenancy/row_security.py", "jobs/states.py"}


def test_no_migration_runs_a_file_of_sql_whose_change_the_hash_would_miss():
    assert not [
        path for path in migrations(ROOT) if re.search(r"load_sql|run_sql|read_text|open\(", path.read_text("utf-8"))
    ]


@pytest.mark.django_db(transaction=True)  # a copy is made by a connection of its own
def test_a_copy_is_an_installation_of_its_own():
    here, other = Epoch.objects.get(), f"{connection.settings_dict['NAME']}_copy"
    with connection._nodb_cursor() as server:
        copy_database(other)
        try:
            with psycopg.connect(**{**connection.get_connection_params(), "dbname": other}) as there:
                [told] = there.execute("SELECT value FROM jobs_epoch").fetchall()
        finally:
            server.execute(f'DROP DATABASE "{other}" WITH (FORCE)')
    assert told != (here.value,)
