"""
The client's wheel stands alone: in a clean environment with what it declares and nothing else.

No package index is asked: what the wheel declares is copied from the environment that runs this test.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement

from tests.support.processes import ROOT

CLIENT = ROOT / "clients/python"
SERVER = ("django", "queueops", "jobs", "ratelimits", "dashboards", "sandbox")
FOR_SITES = "queueops_client.django_tasks"  # which have Django
IMPORT_ALL = """
import importlib, pkgutil, queueops_client
for module in pkgutil.walk_packages(queueops_client.__path__, "queueops_client."):
    if not module.name.startswith({but!r}):
        print(importlib.import_module(module.name).__name__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, built from a copy: a build may leave nothing in the checkout."""
    directory = tmp_path_factory.mktemp("wheel")
    shutil.copytree(CLIENT, directory / "source", ignore=shutil.ignore_patterns(".*", "__pycache__"))
    pip("wheel", "--no-build-isolation", "--no-deps", "--wheel-dir", str(directory), str(directory / "source"))
    (built,) = directory.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def library(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel and no extra."""
    return environment(tmp_path_factory.mktemp("library"), wheel)


@pytest.fixture(scope="module")
def command(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment with the wheel and its extra `cli`."""
    return environment(tmp_path_factory.mktemp("command"), wheel, extra="cli")


def environment(directory: Path, wheel: Path, *, extra: str = "") -> Path:
    run(sys.executable, "-m", "venv", "--without-pip", directory)
    python = directory / "bin/python"
    pip("--python", str(python), "install", "--no-index", "--no-deps", str(wheel))
    (metadata,) = directory.glob("lib/python*/site-packages/queueops_client-*.dist-info")
    for needed in closure(Distribution.at(metadata), extra=extra):
        copy(needed, to=metadata.parent)
    pip("--python", str(python), "check")
    return python


def closure(of: Distribution, *, extra: str = "") -> Iterator[Distribution]:
    """Yield what a distribution requires, directly or not."""
    for line in of.requires or ():
        requirement = Requirement(line)
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        needed = distribution(requirement.name)
        yield needed
        yield from closure(needed, extra=",".join(requirement.extras))


def copy(package: Distribution, *, to: Path) -> None:
    for file in package.files or ():
        if ".." not in file.parts and file.suffix != ".pyc":
            target = to / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file.locate(), target)


def pip(*arguments: str) -> None:
    run(sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments)


def run(*command: str | Path, cwd: Path = CLIENT, code: int = 0) -> str:
    ended = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == code, f"{command}:\n{ended.stdout}{ended.stderr}"
    return ended.stdout + ended.stderr


def modules(*but: str) -> set[str]:
    paths = (path.relative_to(CLIENT / "src").with_suffix("") for path in (CLIENT / "src").rglob("*.py"))
    names = {".".join(path.parts).removesuffix(".__init__") for path in paths}
    return {name for name in names if name != "queueops_client" and not name.startswith(but)}


def test_the_wheel_holds_the_package_and_nothing_else(wheel):
    tops = {name.partition("/")[0] for name in ZipFile(wheel).namelist()}
    assert tops == {"queueops_client", "-".join(wheel.name.split("-")[:2]) + ".dist-info"}


def test_without_the_extra_everything_but_the_command_can_be_imported(library):
    but = ("queueops_client.cli", FOR_SITES)
    assert set(run(library, "-I", "-c", IMPORT_ALL.format(but=but)).split()) == modules(*but)


def test_without_the_extra_the_command_says_what_to_install(library):
    assert "queueops-client[cli]" in run(library.with_name("queueops"), "--help", code=1)


def test_with_the_extra_every_module_can_be_imported(command):
    assert set(run(command, "-I", "-c", IMPORT_ALL.format(but=(FOR_SITES,))).split()) == modules(FOR_SITES)


def test_the_command_helps(command):
    assert "submit" in run(command.with_name("queueops"), "--help")


def test_nothing_of_the_server_is_there(command):
    found = f"from importlib.util import find_spec; print([name for name in {SERVER} if find_spec(name)])"
    assert run(command, "-I", "-c", found, cwd=ROOT) == "[]\n"


@pytest.mark.parametrize(
    "files",
    [
        pytest.param(("test_transport.py",), id="short"),
        pytest.param((), id="long", marks=pytest.mark.soak),
    ],
)
def test_the_clients_own_tests_pass_there(files, command, tmp_path):
    (site,) = command.parent.parent.glob("lib/python*/site-packages")
    (metadata,) = site.glob("queueops_client-*.dist-info")
    for needed in closure(Distribution.at(metadata), extra="test"):
        copy(needed, to=site)
    shutil.copytree(CLIENT / "tests", tmp_path / "tests", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(CLIENT / "pyproject.toml", tmp_path)
    # Away from src/, which `pythonpath` would find before the wheel.
    run(command, "-I", "-m", "pytest", "-q", *(f"tests/{name}" for name in files), cwd=tmp_path)
