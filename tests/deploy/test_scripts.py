"""deploy/manage.sh and deploy/backup.sh, run as they are with something else in manage.py's place."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.support.deployment import DEPLOY
from tests.support.processes import ROOT


def place(script: str, tmp_path: Path, instead: dict[str, str]) -> Path:
    """Put the script into an installation of its own."""
    text = (DEPLOY / script).read_text(encoding="utf-8")
    for words, other in instead.items():
        assert words in text
        text = text.replace(words, other)
    found = tmp_path / "installation/deploy" / script
    found.parent.mkdir(parents=True)
    found.write_text(text, encoding="utf-8")
    found.chmod(0o755)
    return found


def test_manage_reads_the_environment_as_systemd_does_and_runs_none_of_it(tmp_path):
    file = tmp_path / "queueops.env"
    file.write_text(
        "# a comment; touch ran\n"
        "\n"
        "DATABASE_URL=postgresql://q:p@h/q?sslmode=verify-full&target_session_attrs=read-write\n"
        "ODD=$(touch ran) `touch ran` $HOME 'b' \\n # no comment\n"
        'QUOTED="two words"\n'
        "LAST=without an end"
    )
    instead = {"/etc/queueops/queueops.env": str(file), "runuser -u queueops -- deploy/run.sh": "env"}
    script = place("manage.sh", tmp_path, instead)
    done = subprocess.run((script, "-0"), capture_output=True, text=True, check=True, env={"PATH": os.environ["PATH"]})
    given = dict(line.split("=", 1) for line in done.stdout.split("\0") if line)
    assert given["DATABASE_URL"] == "postgresql://q:p@h/q?sslmode=verify-full&target_session_attrs=read-write"
    assert given["ODD"] == "$(touch ran) `touch ran` $HOME 'b' \\n # no comment"
    assert (given["QUOTED"], given["LAST"]) == ("two words", "without an end")
    assert list(tmp_path.rglob("ran")) == []


def test_backup_removes_the_old_ones_of_its_own_and_nothing_else_that_is_there(tmp_path):
    backups = tmp_path / "backups"
    archive, young = backups / "archive", backups / "2026-11-02T030000Z"
    for directory in (archive, young):
        directory.mkdir(parents=True)
    command = ".venv/bin/python manage.py backup"
    subprocess.run((place("backup.sh", tmp_path / "first", {command: "mkdir"}), backups, "14"), check=True)
    [made] = {*backups.iterdir()} - {archive, young}
    for directory in (archive, made):
        os.utime(directory, (0, 0))
    subprocess.run((place("backup.sh", tmp_path / "second", {command: "true"}), backups, "14"), check=True)
    assert {*backups.iterdir()} == {archive, young}


def test_the_secrets_that_the_page_writes_into_the_checkout_are_never_committed():
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert {"/deploy/.env", "/queueops.env"} <= set(ignored)
