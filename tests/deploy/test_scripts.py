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


def stand_ins(directory: Path, **scripts: str) -> Path:
    """Programs in place of the system's."""
    directory.mkdir()
    for name, text in scripts.items():
        (directory / name).write_text(f"#!/bin/sh\n{text}\n")
        (directory / name).chmod(0o755)
    return directory


def test_install_leaves_what_others_may_read_and_ends_well_only_if_its_user_has_run_it(tmp_path):
    python = 'mkdir -p "$3/bin"; printf "#!/bin/sh\\n" > "$3/bin/python"; chmod +x "$3/bin/python"'
    programs = stand_ins(tmp_path / "programs", python3=python, id='[ "$1" = -u ] && echo 0', runuser="exit $REFUSED")
    script = place("install.sh", tmp_path, {"PATH=/usr/local/sbin": f"PATH={programs}:/usr/local/sbin"})
    installed = script.parents[1]
    (installed / "manage.py").touch()

    def install(**environ: str) -> tuple[int, str]:
        done = subprocess.run(
            ("sh", "-c", f"umask 077; exec {script}"), capture_output=True, text=True, check=False, env=environ
        )
        return done.returncode, done.stdout + done.stderr

    code, said = install(REFUSED="0")
    assert code == 1
    assert "There is no user queueops" in said
    stand_ins(tmp_path / "more", id="echo 0")
    (programs / "id").write_text((tmp_path / "more/id").read_text())
    code, said = install(REFUSED="0")
    assert (code, "can be run by queueops" in said) == (0, True)
    assert (installed / ".venv/bin/python").stat().st_mode & 0o055 == 0o055
    code, said = install(REFUSED="1")
    assert (code, "The user queueops cannot run it" in said) == (1, True)
    assert f"chmod -R go+rX {installed}" in said


def test_switch_sets_the_link_and_restarts_workers_and_then_one_web_process_after_the_other(tmp_path):
    systemctl = """case $1 in
list-units) for unit in queueops-workers.service queueops-web@8000.service queueops-web@8002.service; do
    for last in "$@"; do :; done
    case $unit in $last) echo "$unit loaded active";; esac; done ;;
*) echo "$@" >> "$LOG" ;;
esac"""
    programs = stand_ins(tmp_path / "programs", systemctl=systemctl, curl='echo "curl ${9}" >> "$LOG"')
    for version in ("1.1.0", "1.2.0"):
        home = place("switch.sh", tmp_path / version, {}).parents[1]
        (tmp_path / "srv/releases").mkdir(parents=True, exist_ok=True)
        home.rename(tmp_path / "srv/releases" / version)
    releases, log = tmp_path / "srv/releases", tmp_path / "log"
    environ = {"PATH": f"{programs}:{os.environ['PATH']}", "LOG": str(log)}

    def switch(version: str) -> subprocess.CompletedProcess[str]:
        command = (releases / "1.1.0/deploy/switch.sh", releases / version)
        return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)

    refused = switch("1.2.0")
    assert refused.returncode == 1
    assert "is not installed: run" in refused.stderr
    for version in ("1.2.0", "1.1.0"):  # and back
        (releases / version / ".venv/bin").mkdir(parents=True)
        (releases / version / ".venv/bin/python").touch(mode=0o755)
        assert switch(version).returncode == 0
        assert (tmp_path / "srv/current").resolve() == releases / version
    assert [line.removeprefix("restart ") for line in log.read_text().splitlines() if line.startswith("restart")] == [
        "queueops-workers.service",
        "queueops-web@8000.service",
        "queueops-web@8002.service",
    ] * 2
    assert log.read_text().splitlines()[2].startswith("curl"), "the second waits until the first is ready"
