"""
Two workers that share a run (`make test`), each with a database of its own.

One runs the tests that start many processes, for two such tests at once would keep each other waiting; the other
begins with the rest. A module is never divided: its tests may share what it has set up.
"""

from __future__ import annotations

import re

import pytest
from xdist.scheduler import LoadScopeScheduling

MANY_PROCESSES = (
    "tests/faults/",
    "tests/limits/",
    "tests/client/test_two_clients.py",
    "tests/client/test_example.py",
    "tests/core/test_up.py",
    "tests/jobs/test_documents.py",
)

UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class ByModule(LoadScopeScheduling):
    """Hands out whole modules, in the order in which they were collected."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


def group_of(nodeid: str) -> str:
    """Name what must not run at the same time as a test."""
    return "processes" if nodeid.startswith(MANY_PROCESSES) else nodeid.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> ByModule:
    config.option.loadscopereorder = False
    return ByModule(config, log)  # type: ignore[arg-type]


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name a test alike in both workers though a parameter is drawn at random."""
    return UUID.sub("uuid", val) if isinstance(val, str) and UUID.search(val) else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that start processes: they take longest, and their worker would end last."""
    items.sort(key=lambda item: not item.nodeid.startswith(MANY_PROCESSES))
