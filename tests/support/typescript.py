"""The TypeScript client, installed and built once for all test processes."""

from __future__ import annotations

import fcntl
import functools
import hashlib
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.processes import ROOT

PACKAGE = ROOT / "clients/typescript"
NODE = PACKAGE / "node_modules/node/bin/node"
INSTALLED_FROM = ("package.json", "package-lock.json", ".npmrc")
BUILT_FROM = (*INSTALLED_FROM, "tsconfig.json", "src")
NODE_OPTIONS = "--disable-warning=ExperimentalWarning"  # of node:sqlite


@functools.cache
def node() -> str:
    """
    The command that runs Node with the client built; made ready first where that is not done.

    Without npm the test is skipped, and `.ci/run` fails on that.
    """
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    with _alone():
        _unless_done(INSTALLED_FROM, "node_modules/.done", ("npm", "ci", "--no-audit", "--no-fund"))
        _unless_done(BUILT_FROM, "dist/.done", (str(NODE), "node_modules/typescript/bin/tsc"))
    return str(NODE)


def run(*command: str, cwd: Path = PACKAGE, input: str | None = None) -> str:  # noqa: A002 (as of subprocess.run)
    """What a command prints; fails with all of it."""
    ended = subprocess.run(command, cwd=cwd, input=input, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, f"{command}:\n{ended.stdout}{ended.stderr}"
    return ended.stdout


@contextmanager
def _alone() -> Iterator[None]:
    with (PACKAGE / "package.json").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _unless_done(sources: Iterable[str], stamp: str, command: tuple[str, ...]) -> None:
    """Run a command if it was not run on these sources yet."""
    state, done = _digest(sources), PACKAGE / stamp
    if done.exists() and done.read_text() == state:
        return
    run(*command)
    done.write_text(state)


def _digest(sources: Iterable[str]) -> str:
    digest = hashlib.sha256()
    for source in sources:
        for path in sorted([PACKAGE / source, *(PACKAGE / source).rglob("*")]):
            if path.is_file():
                digest.update(str(path).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
