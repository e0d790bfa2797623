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
