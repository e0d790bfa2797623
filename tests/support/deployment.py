"""What the files of deploy/ say, read as the programs that use them read it."""

from __future__ import annotations

import configparser
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from django.core.management import get_commands

from queueops.core.env.reading import read
from queueops.site.management.commands.up import DRAIN_MARGIN_SECONDS
from tests.support.processes import ROOT

DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
SYSTEMD = DEPLOY / "systemd"
HOME = "/srv/queueops"  # where the image has the checkout
CURRENT = f"{HOME}/current"  # where the units have the release that runs

DRAIN_SECONDS = read({}, default_data_dir=Path()).drain_grace_seconds
OUTCOMES = "/var/log/queueops-outcomes"  # where docs/how-to/reconcile.md has workers write
PATIENCE_OF_MIGRATE = "-c lock_timeout=2s"  # as docs/how-to/upgrade.md says
WORKERS_STOP_SECONDS = DRAIN_SECONDS + DRAIN_MARGIN_SECONDS


@dataclass(frozen=True)
class Step:
    """An instruction of the Dockerfile, its lines joined: COPY, and what is copied where."""

    name: str
    text: str

    @property
    def words(self) -> list[str]:
        return shlex.split(self.text)


def dockerfile() -> list[Step]:
    lines = re.sub(r"^\s*#.*\n", "", (DEPLOY / "Dockerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    joined = re.sub(r"\\\n", " ", lines)
    return [Step(*line.split(maxsplit=1)) for line in joined.splitlines() if line.strip()]


def stages() -> list[list[Step]]:
    """The Dockerfile's instructions by stage, without what stands before the first FROM."""
    found: list[list[Step]] = []
    for step in dockerfile():
        if step.name == "FROM":
            found.append([])
        if found:
            found[-1].append(step)
    return found


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # as configparser's documentation has it
    parser.read_string((SYSTEMD / name).read_text(encoding="utf-8"))
    return parser


def manifests(name: str) -> list[dict[str, Any]]:
    return [found for found in yaml.safe_load_all((KUBERNETES / name).read_text(encoding="utf-8")) if found]


def is_command(word: str) -> bool:
    """Whether manage.py knows the word."""
    return word in get_commands()
