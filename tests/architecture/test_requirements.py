"""The lock is complete, hashed, and free of anything about the machine that compiled it."""

import json
import re
import subprocess
import tomllib

import pytest

from tests.support.processes import ROOT

pytestmark = pytest.mark.proves("S14")

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSIONS = (ROOT / ".ci/versions").read_text()
WORKFLOW = (ROOT / ".github/workflows/tests.yml").read_text()
PAIRS = re.findall(r"\d+\.\d+:\d+\.\d+", VERSIONS.partition('PAIRS="')[2].partition('"')[0])
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
    declared = PROJECT["dependencies"] + [one for extra in PROJECT["optional-dependencies"].values() for one in extra]
    locked = {canonical(name) for name, _ in PINNED.findall(LOCK)}
    for requirement in declared:
        name = re.match(r"[A-Za-z0-9_.-]+", requirement)
        assert name is not None
        assert canonical(name.group()) in locked
        assert ">=" in requirement or name.group().startswith("types-"), requirement


def test_every_python_and_django_that_is_promised_is_tried():
    pairs = {tuple(pair.split(":")) for pair in PAIRS}
    for place, framework in (("Programming Language :: Python :: ", 0), ("Framework :: Django :: ", 1)):
        promised = {line.removeprefix(place) for line in PROJECT["classifiers"] if line.startswith(place)}
        assert promised == {pair[framework] for pair in pairs}
    # Django 6.0 needs 3.12; every other Python is tried with every Django.
    pythons, djangos = ({pair[place] for pair in pairs} for place in (0, 1))
    assert {(one, two) for one in pythons for two in djangos} - pairs == {("3.11", "6.0")}


def test_the_workflow_tries_the_same_pairs():
    assert json.loads(WORKFLOW.partition("pair: ")[2].partition("\n")[0]) == PAIRS


def test_the_lock_keeps_to_the_django_with_long_support():
    assert dict(PINNED.findall(LOCK))["django"].startswith("5.2.")


def test_no_other_pair_can_be_asked_for():
    asked = subprocess.run([ROOT / ".ci/versions", "2.7:1.11"], check=False, capture_output=True, text=True, timeout=60)
    assert asked.returncode == 2
    assert "no such pair: 2.7:1.11" in asked.stderr
