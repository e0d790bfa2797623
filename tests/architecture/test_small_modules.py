"""A module below 60 lines with one public name needs a second importer, or it merges with the module that uses it."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping

import grimp
import pytest

from tests.support.processes import ROOT

SMALL_LINES = 60
PACKAGES = ("dashboards", "demo", "jobs", "queueops", "ratelimits")
# A framework, or our own registration, finds these by their name; or each is a form that packages have.
FORMS = {
    "__init__", "admin", "api", "apps", "asgi", "checks", "docs", "errors", "examples", "feature", "inputs", "models",
    "roles", "routing", "serializers", "settings", "urls", "views", "watch", "wsgi",
}  # fmt: skip
FOLDERS = {"commands", "handlers", "migrations", "models", "serializers", "templatetags", "views"}
ALONE = {
    "queueops.core.env.database": "a section of the settings, as the modules beside it are",
    "queueops.screens.formats.en.formats": "Django finds it through FORMAT_MODULE_PATH",
    "queueops.site.whose": "it needs models, and asgi.py sets Django up first",
    "ratelimits.limits.quota_users": "apps.py registers it, and there no model can be imported",
}
DOTTED = re.compile(r"[\"'](\w+(?:\.\w+)+)[\"']")


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    paths = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    return {".".join(path.relative_to(ROOT).with_suffix("").parts): path.read_text() for path in paths}


@pytest.fixture(scope="module")
def importers() -> dict[str, set[str]]:
    """Each module with those that import it or a name of it, also inside functions."""
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    return {module: graph.find_modules_that_directly_import(module) for module in graph.modules}


def public_names(source: str) -> set[str]:
    names = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name)}
    return {name for name in names if not name.startswith("_")}


def named_in_strings(sources: Mapping[str, str]) -> set[str]:
    """The modules that others name, or whose names they name; the record of a feature does it from its package."""
    told = set()
    for module, source in sources.items():
        for name in DOTTED.findall(source):
            dotted = {name, f"{module.rpartition('.')[0]}.{name}"}
            told |= (dotted | {one.rpartition(".")[0] for one in dotted}) - {module}
    return told


def lonely(sources: Mapping[str, str], importers: Mapping[str, Collection[str]]) -> set[str]:
    told = named_in_strings(sources)
    return {
        module
        for module, source in sources.items()
        if len(source.splitlines()) < SMALL_LINES
        and len(importers.get(module, ())) < 2
        and module not in told
        and not {*module.split(".")[:-1]} & FOLDERS
        and module.rpartition(".")[2] not in FORMS
        and "@admin.register(" not in source
        and len(public_names(source)) == 1
    }


def test_a_small_module_has_two_importers(sources, importers):
    assert len(importers) > 800, "the modules were found"
    assert lonely(sources, importers) == ALONE.keys()


def test_a_small_module_with_one_importer_is_found(sources, importers):
    def found(source="class Kept:\n    LEFT = _LEFT = 1", *users, name="jobs.small", told=""):
        planted = {**sources, name: source, "jobs.first": told}
        return lonely(planted, {**importers, name: {*users}}) - ALONE.keys()

    assert found() == found("KEPT = _LEFT = 1", "jobs.first") == {"jobs.small"}
    assert found("def kept(): ...", "jobs.first", "jobs.second") == set()
    assert found("def kept(): ...\nOTHER: int = 1") == set()
    assert found("KEPT = 1\n" + "\n" * SMALL_LINES) == set()
    assert found(told="_USED = _LEFT = 'small.Kept'") == found(told="_USED, _LEFT = 'jobs.small', 1") == set()
    assert found(name="jobs.handlers.small") == found(name="jobs.small.urls") == set()
