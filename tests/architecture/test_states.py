"""
What draws or names a job's states outside Python's own enumeration: templates, style sheets, scripts, the client.

A state that is added, renamed or removed fails here wherever it is missing or left. `outage` is drawn like a state:
jobs that an outage holds are `rate_limited`, and are shown apart.
"""

from __future__ import annotations

import re
from pathlib import Path

from django.conf import settings

from jobs.states import RUNNING, TERMINAL, WAITING, JobState
from queueops_client.cli import words

BASE: Path = settings.BASE_DIR
STATES = set(JobState.values)
SHOWN = STATES | {"outage"}
UNFINISHED = {state.value for state in WAITING | RUNNING}
LIVE = BASE / "dashboards/static/dashboards/live"
DRAWN = [
    path
    for app in ("dashboards", "demo", "jobs", "queueops", "ratelimits", "templates")
    for kind in ("html", "css", "js", "py")
    for path in sorted((BASE / app).rglob(f"*.{kind}"))
]


def of_script(name: str, constant: str) -> str:
    """The text of the value that a script gives a constant."""
    found = re.search(rf"const {constant} = (.*?)(?:;\n|\n +\.)", (LIVE / name).read_text(encoding="utf-8"), re.DOTALL)
    assert found, constant
    return found[1]


def test_every_state_has_a_template_and_no_other_has():
    templates = {path.stem: path for path in (BASE / "templates/partials/job_state").iterdir()}
    assert set(templates) == SHOWN
    for state, path in templates.items():
        drawn = re.findall(r"qo-state-(\w+)", path.read_text(encoding="utf-8"))
        assert drawn == ["failed" if state == "outage" else state]


def test_classes_are_named_after_states_that_exist():
    found: dict[str, set[str]] = {}
    for path in DRAWN:
        for name in re.findall(r"(?<![\w-])(?:qo-)?(?:state|fill)-([a-z_]+)\b", path.read_text(encoding="utf-8")):
            found.setdefault(name, set()).add(path.name)
    assert set(found) <= SHOWN | {"quota"}, found  # beyond the quota's line a month's bar is filled as its own part
    assert len(found) >= len(STATES) - 2


def test_the_live_pages_have_a_sign_a_tile_and_a_line_for_each():
    assert set(re.findall(r"(\w+):", of_script("blocks.js", "STATE_SIGNS"))) == SHOWN
    with_running = SHOWN - {"dispatched"}  # which is counted among the running
    assert set(re.findall(r'\["(\w+)"', of_script("me.js", "TILES"))) == with_running
    assert set(re.findall(r'\["(\w+)"', of_script("blocks.js", "shown"))) == with_running
    assert set(re.findall(r"counts\.(\w+)", of_script("me.js", "open"))) == UNFINISHED | {"outage"}
    assert set(re.findall(r'\["(\w+)"', of_script("charts.js", "STATED"))) == UNFINISHED


def test_the_client_lists_each_state_and_the_ended_ones_first():
    assert sorted(words.STATES) == sorted(STATES)
    assert set(words.STATES[: len(TERMINAL)]) == {state.value for state in TERMINAL}
