"""The units are whole, start commands that exist, and stop workers as these need it."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess

import pytest

from tests.support.all_faults import all_faults
from tests.support.deployment import (
    CURRENT,
    DRAIN_SECONDS,
    OUTCOMES,
    PATIENCE_OF_MIGRATE,
    SYSTEMD,
    WORKERS_STOP_SECONDS,
    is_command,
    unit,
)
from tests.support.processes import ROOT

UNITS = sorted(path.name for path in SYSTEMD.iterdir())
SERVICES = [name for name in UNITS if name.endswith(".service")]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_finds_nothing_wrong(tmp_path):
    for name in UNITS:
        text = (SYSTEMD / name).read_text(encoding="utf-8")
        # It looks whether what is started is there.
        text = text.replace(CURRENT, str(ROOT))
        (tmp_path / name).write_text(text, encoding="utf-8")
    shown = [name.replace("@.", "@8000.") for name in UNITS]
    command = ("systemd-analyze", "verify", "--man=no", *(tmp_path / name for name in shown))
    verified = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stderr) == (0, "")


def test_each_starts_a_command_that_exists_as_a_user_who_may_write_nothing():
    with all_faults() as of:
        for name in SERVICES:
            service = unit(name)["Service"]
            words = shlex.split(service["ExecStart"])
            script = next(word for word in words if word.startswith(CURRENT))
            with of(name):
                assert os.access(script.replace(CURRENT, str(ROOT)), os.X_OK)
                if script == f"{CURRENT}/deploy/run.sh":
                    assert is_command(words[words.index(script) + 1])
                assert service["User"] == "queueops"
                assert service["WorkingDirectory"] == CURRENT
                assert (service["ProtectSystem"], service["NoNewPrivileges"]) == ("strict", "yes")


def test_workers_are_told_to_stop_by_their_first_process_and_given_the_time():
    service = unit("queueops-workers.service")["Service"]
    assert service["ExecStart"].endswith("deploy/run.sh qcluster")
    assert service["KillMode"] == "mixed"
    assert int(service["TimeoutStopSec"]) >= WORKERS_STOP_SECONDS
    assert int(unit("queueops-web@.service")["Service"]["TimeoutStopSec"]) > DRAIN_SECONDS


def test_what_must_run_comes_back_however_often_it_fails():
    for found in (unit("queueops-web@.service"), unit("queueops-workers.service")):
        assert found["Service"]["Restart"] == "always"
        assert found["Unit"]["StartLimitIntervalSec"] == "0"
        assert "Requires" not in found["Unit"]  # a failed migration would end the tries


def test_workers_and_backups_may_write_where_the_pages_have_them_write_and_nobody_may_read_it():
    workers, backup = unit("queueops-workers.service")["Service"], unit("queueops-backup.service")["Service"]
    assert (f"/var/log/{workers['LogsDirectory']}", workers["LogsDirectoryMode"]) == (OUTCOMES, "0700")
    assert f"/var/lib/{backup['StateDirectory']}" == shlex.split(backup["ExecStart"])[1]
    assert backup["StateDirectoryMode"] == "0700"


def test_migrate_waits_briefly_for_a_table_in_use_and_tries_again():
    service = unit("queueops-migrate.service")["Service"]
    assert shlex.split(service["Environment"]) == [f"PGOPTIONS={PATIENCE_OF_MIGRATE}"]
    assert service["Restart"] == "on-failure"
