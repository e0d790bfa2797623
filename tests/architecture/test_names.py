"""A name means one thing."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.support.processes import ROOT

# The Python client is not among them: it is a package of its own, and its users know a job or a batch by the names that
# the server's API has for them.
PACKAGES = ("bench", "dashboards", "demo", "jobs", "queueops", "ratelimits", "sandbox")
GIVEN_BY_DJANGO = {"Command", "Migration"}  # found in their modules by these names


def modules() -> Iterator[Path]:
    for package in PACKAGES:
        yield from (ROOT / package).rglob("*.py")


def public_figures(path: Path) -> Iterator[tuple[str, str]]:
    """The constants that are a number or made of numbers, each with its source."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(target := node.targets[0], ast.Name) and target.id.isupper():
            parts = [part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant)]
            is_made = not any(
                isinstance(part, ast.List | ast.Tuple | ast.Dict | ast.Set) for part in ast.walk(node.value)
            )
            if parts and is_made and all(isinstance(part, int | float) for part in parts):
                yield target.id, ast.unparse(node.value)


def public_classes(path: Path) -> set[str]:
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return {node.name for node in body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")}


def test_no_public_class_has_the_name_of_another():
    places = defaultdict(list)
    for path in modules():
        for name in public_classes(path) - GIVEN_BY_DJANGO:
            places[name].append(str(path.relative_to(ROOT)))
    assert len(places) > 500  # the packages were found
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_public_figure_has_two_values():
    values = defaultdict(set)
    for path in modules():
        if path.relative_to(ROOT).parts[0] != "bench":  # each benchmark has figures of its own, which nothing imports
            for name, value in public_figures(path):
                values[name].add(value.removesuffix(".0"))
    assert len(values) > 300  # the figures were found
    assert {name: found for name, found in values.items() if len(found) > 1} == {}
