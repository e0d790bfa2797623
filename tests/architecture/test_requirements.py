"""The lock is complete, hashed, and free of anything about the machine that compiled it."""

import re
import tomllib

import pytest

from tests.support.processes import ROOT

pytestmark = pytest.mark.proves("S14")

LOCK = (ROOT / "requirements.lock").read_text()
PINNED = re.compile(r"^([A-Za-z0-9_.-]+)==(\S+)", re.MULTILINE)


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_lock_names_no_registry_and_no_local_path():
    assert not re.search(r"https?://|file:|--(extra-)?index-url|--find-links|@ ", LOCK)


def test_every_locked_package_has_hashes():
    for entry in re.split(r"\n(?=[A-Za-z0-9])", LOCK)[1:]:
        assert "--hash=sha256:" in entry, entry.splitlines()[0]


def test_every_declared_dependency_is_locked_and_has_a_lower_bound():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = project["dependencies"] + [one for extra in project["optional-dependencies"].values() for one in extra]
    locked = {canonical(name) for name, _ in PINNED.findall(LOCK)}
    for requirement in declared:
        name = re.match(r"[A-Za-z0-9_.-]+", requirement)
        assert name is not None
        assert canonical(name.group()) in locked
        assert ">=" in requirement or name.group().startswith("types-"), requirement
