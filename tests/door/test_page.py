"""The page "Change one URL", word for word: its programs run against a running installation."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from queueops.tenancy.models import Project
from tests.support.processes import ROOT, RunningProcess
from tests.support.sandbox import Sandbox
from tests.support.typescript import PACKAGE, node

from .conftest import MODEL, route_to

PAGE = (ROOT / "docs/how-to/change-one-url.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)
PROGRAMS = [text for language, text in BLOCKS if language == "python"]
[JAVASCRIPT] = [text for language, text in BLOCKS if language == "javascript"]
CURL = next(text for language, text in BLOCKS if "curl" in text)
LINE = json.loads(next(text for language, text in BLOCKS if language == "json"))
MODELS = ("gpt-5-mini", "claude-haiku-4-5")


@pytest.fixture
def place(*, address: str, key: str, project: Project, sandbox: Sandbox, tmp_path: Path) -> Path:
    route_to(sandbox, project, provider="anthropic")
    lines = [json.dumps({**LINE, "custom_id": f"row-{number}"}) for number in range(3)]
    (tmp_path / "requests.jsonl").write_text(here("\n".join(lines), address, key))
    (tmp_path / "node_modules").symlink_to(PACKAGE / "node_modules")
    return tmp_path


def here(text: str, address: str, key: str) -> str:
    for model in MODELS:
        text = text.replace(model, MODEL)
    return text.replace("http://127.0.0.1:8000", address).replace("qo_your_key", key).replace('"24h"', '"10m"')


def run(place: Path, *command: str) -> str:
    ended = subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=120, env=os.environ, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def answers_in(place: Path) -> list[str]:
    return [json.loads(line)["custom_id"] for line in (place / "answers.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_a_program_of_the_page_runs(*, number: int, place: Path, address: str, key: str, workers: RunningProcess):
    program = here(PROGRAMS[number], address, key)
    told = run(place, sys.executable, "-c", program)
    assert told.strip()
    if "batches.create(\n" in program and "openai" in program:
        assert answers_in(place) == ["row-0", "row-1", "row-2"]


def test_the_pages_program_for_node_runs(place: Path, address: str, key: str, workers: RunningProcess):
    (place / "batch.mjs").write_text(here(JAVASCRIPT, address, key))
    assert run(place, node(), "batch.mjs").startswith("completed")
    assert answers_in(place) == ["row-0", "row-1", "row-2"]


def test_the_pages_lines_for_curl_run(place: Path, address: str, key: str):
    told = json.loads(run(place, "bash", "-c", here(CURL, address, key)))
    assert (told["object"], told["request_counts"]["total"]) == ("batch", 3)
