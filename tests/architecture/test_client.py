"""The client knows nothing of the server but its API, and the server nothing of the client."""

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator

from tests.support.all_faults import all_faults
from tests.support.processes import ROOT

CLIENT = ROOT / "clients/python"
PACKAGE = CLIENT / "src/queueops_client"
SERVER = ("queueops", "jobs", "ratelimits", "dashboards", "sandbox")


def imported(source: str) -> Iterator[str]:
    """Yield the first name of each import, also of those inside functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield (node.module or "").partition(".")[0]


def declared(*extras: str) -> set[str]:
    project = tomllib.loads((CLIENT / "pyproject.toml").read_text())["project"]
    requirements = project["dependencies"] + [
        line for name in extras for line in project["optional-dependencies"][name]
    ]
    names = [found.group().replace("-", "_") for line in requirements if (found := re.match(r"[a-z-]+", line))]
    return {*names, *(name.partition("_")[0] for name in names)}  # opentelemetry-api brings opentelemetry


def test_the_blocking_producer_is_what_is_written_from_the_asynchronous_one():
    subprocess.run([sys.executable, "generate_sync.py", "--check"], cwd=CLIENT, check=True)


EXTRAS = {"trace.py": "otel", "django_tasks.py": "django"}


def test_the_client_imports_only_what_it_declares():
    with all_faults() as of:
        for path in PACKAGE.rglob("*.py"):
            extra = "cli" if path.is_relative_to(PACKAGE / "cli") else EXTRAS.get(path.name)
            known = {*sys.stdlib_module_names, *declared(*([extra] if extra else [])), "queueops_client"}
            with of(path.relative_to(PACKAGE)):
                assert set(imported(path.read_text())) <= known


def test_the_server_imports_nothing_of_the_client():
    sources = {path: path.read_text() for name in SERVER for path in (ROOT / name).rglob("*.py")}
    assert len(sources) > len(SERVER)
    named = {path: source for path, source in sources.items() if "queueops_client" in source}
    assert [str(path) for path, source in named.items() if "queueops_client" in imported(source)] == []
