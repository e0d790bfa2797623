"""The glossary speaks of what the code has, and gives each word one meaning."""

from __future__ import annotations

import ast
import re
from typing import get_args

from jobs.states import JobState, Priority
from ratelimits.limiter.decide import Kind
from ratelimits.models import UsageReservation
from tests.support.all_faults import all_faults
from tests.support.processes import ROOT

PAGE = (ROOT / "docs/reference/glossary.md").read_text(encoding="utf-8")
ROWS = [
    tuple(cell.strip() for cell in line.strip("|").split(" | ")) for line in PAGE.splitlines() if line.startswith("| ")
]
TERMS = [row for row in ROWS if row[0] not in {"word", "---"}]
# Words whose values are listed in their row.
VALUES = {
    "state": JobState.values,
    "tier": Priority.values,
    "decision": get_args(Kind),
    "reservation": UsageReservation.Status.values,
}


def names_in(source: str) -> set[str]:
    """What a module defines: classes, functions, constants and fields."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                found.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                found.add(name)
    return found


def test_a_word_is_where_the_glossary_says():
    with all_faults() as of:
        for word, meaning, place in TERMS:
            with of(word):
                found = re.fullmatch(r"`(\w+)` in `([\w/]+\.py)`", place)
                assert found
                name, path = found.groups()
                assert name in names_in((ROOT / path).read_text(encoding="utf-8")), place
                assert meaning


def test_a_word_has_one_meaning():
    words = [word for word, _, _ in TERMS]
    assert len(words) == len(set(words))


def test_the_values_of_a_word_are_those_of_the_code():
    for word, values in VALUES.items():
        [meaning] = [meaning for one, meaning, _ in TERMS if one == word]
        assert set(re.findall(r"`(\w+)`", meaning)) == set(values), word
