"""deploy/compose.yaml keeps the Compose specification, and says what QueueOps needs."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from queueops.core.env.environment import declared_settings
from tests.support.deployment import (
    DEPLOY,
    DRAIN_SECONDS,
    OUTCOMES,
    PATIENCE_OF_MIGRATE,
    WORKERS_STOP_SECONDS,
    is_command,
    stages,
)
from tests.support.environment import make_environment

FILE = DEPLOY / "compose.yaml"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))["services"]
OURS = {name: service for name, service in SERVICES.items() if str(service["image"]).startswith("queueops")}


def seconds(text: str) -> int:
    assert re.fullmatch(r"\d+s", text)
    return int(text[:-1])


def test_it_keeps_the_specification():
    checker = Path(sys.executable).with_name("check-jsonschema")
    command = (checker, "--builtin-schema", "vendor.compose-spec", FILE)
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_its_parts_are_those_of_an_installation():
    assert OURS.keys() == {"migrate", "web", "workers", "backup"}
    commands = {name: service["command"][0] for name, service in OURS.items() if name != "backup"}
    assert all(map(is_command, commands.values()))
    assert commands["workers"] == "qcluster"
    assert "deploy/backup.sh /backups" in OURS["backup"]["command"][0]


def test_nothing_of_ours_may_write_but_where_it_must():
    for name, service in OURS.items():
        assert service["read_only"] is True, name
        assert service["tmpfs"] == ["/tmp"], name  # noqa: S108 - the container's own
        assert service["cap_drop"] == ["ALL"], name


def test_a_volume_belongs_to_who_writes_it():
    for name, path in (("workers", OUTCOMES), ("backup", "/backups")):
        [mount] = OURS[name]["volumes"]
        assert mount.split(":")[1] == path
        # A named volume takes the owner of the image's directory.
        assert any("install --directory --owner=10001" in step.text and path in step.words for step in stages()[-1])


def test_migrate_waits_briefly_for_a_table_in_use_and_tries_again():
    assert OURS["migrate"]["environment"] == {"PGOPTIONS": PATIENCE_OF_MIGRATE}
    assert OURS["migrate"]["restart"] == "on-failure"


def test_nothing_starts_before_the_tables_are_up_to_date():
    waiting = {name: service["depends_on"] for name, service in OURS.items() if name != "migrate"}
    assert waiting.keys() == {"web", "workers", "backup"}
    assert all(one == {"migrate": {"condition": "service_completed_successfully"}} for one in waiting.values())


def test_work_under_way_is_given_its_time_to_end():
    assert seconds(OURS["workers"]["stop_grace_period"]) >= WORKERS_STOP_SECONDS
    assert seconds(OURS["web"]["stop_grace_period"]) > DRAIN_SECONDS


def test_every_file_that_it_mounts_is_there():
    mounted = [mount.split(":")[0] for service in SERVICES.values() for mount in service.get("volumes", ())]
    assert [path for path in mounted if path.startswith("./") and not (DEPLOY / path).is_file()] == []


def test_the_database_can_be_reached_by_what_needs_it_alone():
    assert yaml.safe_load(FILE.read_text())["networks"]["database"] == {"internal": True}
    assert SERVICES["database"]["networks"] == ["database"]
    assert SERVICES["proxy"]["networks"] == ["front"]
    assert "ports" not in SERVICES["database"]


def test_what_it_takes_from_the_environment_is_what_make_env_writes():
    made = make_environment("queue.example.org", "--database", "database:5432")
    required = set(re.findall(r"\$\{(\w+):\?", FILE.read_text(encoding="utf-8")))
    assert required == {"DATABASE_PASSWORD", "DOMAIN"} <= made.keys()
    settings = {setting.variable for setting, _ in declared_settings().values()}
    given = [name for service in OURS.values() for name in service.get("environment", {})]
    assert {name for name in given if name.startswith("QUEUEOPS_")} <= settings
