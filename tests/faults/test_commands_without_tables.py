"""Every command of operations says in one sentence that its database has no tables, or is not there."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import psycopg
import pytest
from django.db import connection

import manage
from queueops.core.database import database_settings
from queueops.core.embedded.cluster import EmbeddedServer
from tests.support import processes

USER = str(UUID(int=1))
TOLD = {"bare": "manage.py migrate", "nosuch": 'database "nosuch" does not exist'}
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


@pytest.mark.parametrize(("database", "told"), TOLD.items())
def test_a_database_without_tables_or_none_at_all_is_told_in_a_sentence(
    *, database: str, told: str, url: str, fresh_server: EmbeddedServer, tmp_path: Path, monkeypatch, capsys, settings,
    django_db_blocker,
):  # fmt: skip
    address = url.replace("/bare", f"/{database}")
    settings.QUEUEOPS = replace(settings.QUEUEOPS, database_url=address)
    connection.close()
    before = dict(connection.settings_dict)
    wrong = []
    try:
        connection.settings_dict.update(database_settings(address))
        for words in COMMANDS.values():
            given = [word.format(new=tmp_path, server=fresh_server.dsn("postgres")) for word in words]
            monkeypatch.setattr(sys, "argv", ["manage.py", *given])
            with django_db_blocker.unblock(), pytest.raises(SystemExit) as ended:
                manage.carry_out()
            said = f"{capsys.readouterr().err}{ended.value.code}"
            if told not in said or "Traceback" in said:
                wrong.append(f"{words[0]}: {said}")
    finally:
        connection.close()
        connection.settings_dict.clear()
        connection.settings_dict.update(before)
    assert wrong == []
    assert not (tmp_path / "report").exists()


def test_a_process_that_is_told_ends_without_a_trace(url: str, tmp_path: Path):
    with processes.manage("backup", str(tmp_path / "backup"), environ={"DATABASE_URL": url}) as process:
        assert process.process.wait(120) == 1
        assert TOLD["bare"] in process.output.strip().splitlines()[-1]
        assert "Traceback" not in process.output
