"""No circle of imports: a module is understood with what it imports, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping

import grimp
import pytest

PACKAGES = ("queueops", "demo", "dashboards", "jobs", "ratelimits", "sandbox")
# A process that guards a server imports nothing until its server is gone: it stays small until then.
KNOWN = {frozenset({"queueops.core.embedded.cluster", "queueops.core.embedded.guard"})}


@pytest.fixture(scope="module")
def graph() -> dict[str, set[str]]:
    """Each module with the modules that it imports, also inside functions. Imports for types alone do not count."""
    found = grimp.build_graph(*PACKAGES, cache_dir=None, exclude_type_checking_imports=True)
    return {module: found.find_modules_directly_imported_by(module) for module in found.modules}


def circles(graph: Mapping[str, set[str]]) -> set[frozenset[str]]:
    """The sets of modules of which each leads to each other (Tarjan's strongly connected components)."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    path: list[str] = []
    found = set()

    def visit(module: str) -> None:
        order[module] = low[module] = len(order)
        path.append(module)
        for other in graph.get(module, ()):
            if other not in order:
                visit(other)
                low[module] = min(low[module], low[other])
            elif other in path:
                low[module] = min(low[module], order[other])
        if low[module] == order[module]:
            begin = path.index(module)
            if len(path) - begin > 1:
                found.add(frozenset(path[begin:]))
            del path[begin:]

    for module in graph:
        if module not in order:
            visit(module)
    return found


def test_nobody_imports_in_a_circle(graph):
    assert len(graph) > 800, "the modules were found"
    assert circles(graph) == KNOWN


def test_a_circle_is_found(graph):
    planted = {**graph, "jobs.states": {*graph["jobs.states"], "jobs.transitions"}}
    assert circles(planted) - KNOWN == {frozenset({"jobs.states", "jobs.transitions"})}
