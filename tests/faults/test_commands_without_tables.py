"""Every command of operations says in one sentence that its database has no tables, or is not there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import psycopg
import pytest

from queueops.core.embedded.cluster import EmbeddedServer
from tests.support.processes import manage

USER = str(UUID(int=1))
COMMANDS = {
    "backup": ["backup", "{new}/backup"],
    "restored": ["restored", "--yes"],
    "replay": ["replay"],
    "archive": ["archive", "--to", "{new}"],
    "unarchive": ["unarchive", "--from", "{new}", "--project", "acme", "--day", "2026-01-01"],
    "erase_user": ["erase_user", "acme", USER, "--yes", "--report", "{new}/report"],
    "resume": ["resume", "--over", "10m"],
    "set_pool": ["set_pool", "llm", "--kinds", "llm.*"],
    "move_project": ["move_project", "acme", "--to", "{server}", "--yes"],
}


@pytest.fixture
def url(fresh_server: EmbeddedServer) -> Iterator[str]:
    """Of a database that nothing was done to; `nosuch` in place of its name is that of none."""
    with psycopg.connect(fresh_server.dsn("postgres"), autocommit=True) as admin:
        admin.execute("CREATE DATABASE bare")
        yield fresh_server.dsn("bare")
        admin.execute("DROP DATABASE bare WITH (FORCE)")


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("database", ["bare", "nosuch"])
def test_a_database_without_tables_or_none_at_all_is_told_in_a_sentence(
    *, name: str, database: str, url: str, fresh_server: EmbeddedServer, tmp_path: Path
):
    words = [word.format(new=tmp_path, server=fresh_server.dsn("postgres")) for word in COMMANDS[name]]
    with manage(*words, environ={"DATABASE_URL": url.replace("/bare", f"/{database}")}) as process:
        assert process.process.wait(120) == 1
        told = process.output.strip()
    assert "Traceback" not in told
    assert ("manage.py migrate" if database == "bare" else 'database "nosuch" does not exist') in told.splitlines()[-1]
    assert not (tmp_path / "report").exists()
