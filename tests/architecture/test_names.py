"""A name means one thing."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import ROOT

# The Python client is not among them: it is a package of its own, and its users know a job or a batch by the names that
# the server's API has for them.
PACKAGES = ("bench", "dashboards", "demo", "jobs", "queueops", "ratelimits", "sandbox")
GIVEN_BY_DJANGO = {"Command", "Migration"}  # found in their modules by these names
PUBLIC_CLASS = re.compile(r"^class ([A-Za-z]\w*)", re.MULTILINE)
FIGURE = re.compile(r"^[A-Z_]\w* = (?:[^\"'\[{#\n]*\d|.*\($)", re.MULTILINE)  # a module without one need not be parsed


@pytest.fixture(scope="module")
def sources() -> dict[Path, str]:
    paths = (path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
    return {path.relative_to(ROOT): path.read_text(encoding="utf-8") for path in paths}


def public_figures(source: str) -> Iterator[tuple[str, str]]:
    """The constants that are a number or made of numbers, each with its source."""
    for node in ast.parse(source).body if FIGURE.search(source) else ():
        if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name) and target.id.isupper():
            parts = [part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant)]
            is_made = not any(
                isinstance(part, ast.List | ast.Tuple | ast.Dict | ast.Set) for part in ast.walk(node.value)
            )
            if parts and is_made and all(isinstance(part, int | float) for part in parts):
                yield target.id, ast.unparse(node.value)


def test_no_public_class_has_the_name_of_another(sources):
    places = defaultdict(list)
    for path, source in sources.items():
        for name in set(PUBLIC_CLASS.findall(source)) - GIVEN_BY_DJANGO:
            places[name].append(str(path))
    assert len(places) > 500  # the packages were found
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_public_figure_has_two_values(sources):
    values = defaultdict(set)
    for path, source in sources.items():
        if path.parts[0] != "bench":  # each benchmark has figures of its own, which nothing imports
            for name, value in public_figures(source):
                values[name].add(value.removesuffix(".0"))
    assert len(values) > 300  # the figures were found
    assert {name: found for name, found in values.items() if len(found) > 1} == {}


BOUND = re.compile(r"^_?(?:MOST|LEAST|LONGEST|SHORTEST|LARGEST|SMALLEST|FEWEST|MAXIMUM|MINIMUM)_\w+", re.MULTILINE)


def other_bounds(source: str) -> list[str]:
    return BOUND.findall(source)


def test_bounds_have_one_prefix(sources):
    assert other_bounds("MOST_JOBS = 3\n_LONGEST_KEY = 4\nMAX_JOBS = 5") == ["MOST_JOBS", "_LONGEST_KEY"]
    assert {str(path): found for path, source in sources.items() if (found := other_bounds(source))} == {}
