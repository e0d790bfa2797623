"""A folder can be taken in at a glance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from tests.support.processes import ROOT

MAX_MODULES = 15
PACKAGES = ("dashboards", "demo", "jobs", "queueops", "ratelimits", "sandbox")
# The words that the whole queue speaks, and what Django, django-q2 and handlers of users find by its name.
LARGER = {"jobs": 19}


def crowded(paths: Iterable[Path]) -> dict[str, int]:
    modules = Counter(str(path.parent) for path in paths if path.name != "__init__.py")
    return {folder: count for folder, count in modules.items() if count > MAX_MODULES and "migrations" not in folder}


def modules() -> list[Path]:
    return [path.relative_to(ROOT) for package in PACKAGES for path in (ROOT / package).rglob("*.py")]


def test_no_folder_has_more_modules_than_one_can_take_in():
    assert len(modules()) > 800, "the modules were found"
    assert crowded(modules()) == LARGER


def test_a_crowded_folder_is_found():
    planted = [Path(f"jobs/services/claim/planted_{number}.py") for number in range(MAX_MODULES)]
    assert crowded([*modules(), *planted]).keys() - LARGER.keys() == {"jobs/services/claim"}
