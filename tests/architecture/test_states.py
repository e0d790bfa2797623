"""
What draws or names a job's states outside Python's own enumeration: style sheets, scripts, the client.

Words, signs and tones come from jobs/states.py; what is named all the same fails here where no such state exists.
"""

from __future__ import annotations

import re
from pathlib import Path

from django.conf import settings

from dashboards.services.shared.wire import shown_states
from jobs.states import APART, RUNNING, SHOWN, TERMINAL, WAITING, JobState
from queueops_client.records import ENDED_STATES

BASE: Path = settings.BASE_DIR
DRAWN = [
    path
    for app in ("dashboards", "demo", "jobs", "queueops", "ratelimits", "templates")
    for kind in ("html", "css", "js", "py")
    for path in sorted((BASE / app).rglob(f"*.{kind}"))
]
SHEETS = [BASE / "jobs/static/jobs/admin.css", BASE / "dashboards/static/dashboards/dashboard.css"]


def test_every_tone_is_in_both_style_sheets_and_no_class_is_named_after_a_state():
    for sheet in SHEETS:
        drawn = set(re.findall(r"\.(?:qo-)?tone-([a-z]+)\b", sheet.read_text(encoding="utf-8")))
        assert {shown.tone for shown in SHOWN.values()} <= drawn | {"grey"}, sheet
    for path in DRAWN:
        named = re.findall(
            rf"(?<![\w-])(?:qo-)?(?:state|fill|part|count)-({'|'.join(SHOWN)})\b", path.read_text(encoding="utf-8")
        )
        assert not named, path


def test_every_colour_is_one_of_the_charts():
    sheet = SHEETS[1].read_text(encoding="utf-8")
    assert {shown.colour for shown in SHOWN.values()} <= set(map(int, re.findall(r"\.colour-(\d)", sheet)))


def test_the_pages_are_told_of_each_state_and_its_group():
    told = {one["state"]: one["group"] for one in shown_states()}
    assert {state for state, group in told.items() if group == "ended"} == set(TERMINAL)
    assert {state for state, group in told.items() if group == "running"} == set(RUNNING)
    assert {state for state, group in told.items() if group == "waiting"} == set(WAITING)
    assert set(told) == {*JobState, *APART}


def test_the_clients_know_which_states_are_ended():
    assert set(TERMINAL) == ENDED_STATES
    records = (BASE / "clients/typescript/src/records.ts").read_text()
    [twins] = re.findall(r"ENDED_STATES.*new Set\(\[(.*)\]\)", records)
    assert set(re.findall(r'"(\w+)"', twins)) == ENDED_STATES
