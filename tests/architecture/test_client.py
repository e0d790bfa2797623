"""The client knows nothing of the server but its API, and the server nothing of the client."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import ROOT

CLIENT = ROOT / "clients/python"
PACKAGE = CLIENT / "src/queueops_client"
SERVER = ("queueops", "jobs", "ratelimits", "dashboards", "sandbox")


def imported(path: Path) -> Iterator[str]:
    """Yield the first name of each import, also of those inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield (node.module or "").partition(".")[0]


def declared(*extras: str) -> set[str]:
    project = tomllib.loads((CLIENT / "pyproject.toml").read_text())["project"]
    requirements = project["dependencies"] + [
        line for name in extras for line in project["optional-dependencies"][name]
    ]
    return {name.group() for line in requirements if (name := re.match(r"[a-z]+", line))}


def test_the_blocking_producer_is_what_is_written_from_the_asynchronous_one():
    subprocess.run([sys.executable, "generate_sync.py", "--check"], cwd=CLIENT, check=True)


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_the_client_imports_only_what_it_declares(path):
    extras = ("cli",) if path.is_relative_to(PACKAGE / "cli") else ("otel",) if path.name == "trace.py" else ()
    assert set(imported(path)) <= {*sys.stdlib_module_names, *declared(*extras), "queueops_client"}


def test_the_server_imports_nothing_of_the_client():
    modules = [path for name in SERVER for path in (ROOT / name).rglob("*.py")]
    assert len(modules) > len(SERVER)
    assert [str(path) for path in modules if "queueops_client" in imported(path)] == []
