"""A feature is one folder with a record: all that is central reads the records, and features know few of each other."""

from __future__ import annotations

import ast
import re
import runpy
import time
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.apps import apps
from django.contrib.auth.models import Permission

import jobs.features
from jobs.executor import duties
from jobs.feature import Feature
from jobs.features import FEATURES
from jobs.features.watches import watch
from jobs.models.fragments import written_fragments
from jobs.services.upkeep import retention
from queueops.site.admin_theme import ROOMS
from tests.support.all_faults import all_faults
from tests.support.planted_feature import everything
from tests.support.planted_feature.feature import PLANTED
from tests.support.processes import ROOT
from tests.support.sql_files import FILES, FRAGMENTS

FOLDER = ROOT / "jobs" / "features"
# The path of a job calls these features by name. A contract in pyproject.toml keeps them from importing the others.
ASPECTS = {
    "batch_guards",
    "budget_holds",
    "dependencies",
    "fallback",
    "outages",
    "pools",
    "refused_calls",
    "results",
    "served_kinds",
    "unique",
}
# The first feature of a pair imports the second. The text says why.
TIES = {
    ("erasure", "archive"): "a user is erased from archived days, too",
    ("flow", "objectives"): "the sums of objectives are taken from the same part of the log, in its transaction",
    ("flow", "webhooks"): "so are the jobs that webhooks hear of",
    ("objectives", "flow"): "an objective that is made late is counted from the log",
    ("forecast", "uploads"): "a file of jobs is foreseen as it will be submitted",
    ("uploads", "forecast"): "an upload shows its forecast",
    ("forecast", "windows"): "no job starts in a window",
    ("watches", "flow"): "most attempts fail: the flow has counted them",
    ("webhooks", "watches"): "sending again to webhooks and to the routes of alerts is one verb",
}


def folders() -> set[str]:
    return {path.parent.name for path in FOLDER.glob("*/__init__.py")}


def imported(source: str) -> set[str]:
    """Modules and names that a source imports, dotted; relative ones stay in their feature."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and not node.level:
            found |= {f"{node.module}.{one.name}" for one in node.names}
        elif isinstance(node, ast.Import):
            found |= {one.name for one in node.names}
    return found


def relative_imports(source: str) -> list[ast.ImportFrom]:
    return [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom) and node.level]


def ties_of(sources: Mapping[Path, str]) -> set[tuple[str, str]]:
    """Pairs of features: the first imports the second. Every feature may import an aspect, so aspects do not count."""
    found = set()
    for path, source in sources.items():
        own = path.relative_to(FOLDER).parts[0]
        known = {name.split(".")[2] for name in imported(source) if name.startswith("jobs.features.")}
        found |= {(own, other) for other in known & folders() - ASPECTS if other != own}
    return found


def sources() -> dict[Path, str]:
    return {path: path.read_text() for path in FOLDER.rglob("*.py") if path.parent != FOLDER}


def test_every_folder_has_a_record_and_every_record_a_folder_and_a_guide():
    assert {feature.package for feature in FEATURES} == {f"jobs.features.{name}" for name in folders()}
    assert [feature.package for feature in FEATURES if not (ROOT / "docs" / feature.page).is_file()] == []


@pytest.mark.django_db
def test_what_a_record_names_is_there():
    permissions = set(Permission.objects.filter(content_type__app_label="jobs").values_list("codename", flat=True))
    tabs = [tab for *_, entry in ROOMS for tab in entry]
    with all_faults() as of:
        for feature in FEATURES:
            with of(feature.package):
                for name in (
                    *feature.addresses.values(),
                    *feature.duties,
                    *feature.rounds,
                    *feature.watches,
                    *feature.of_user,
                ):
                    assert callable(feature.find(name))
                assert all(isinstance(feature.find(name), retention.RetentionRule) for name in feature.retention)
                assert {*feature.viewer, *feature.operator, *feature.administrator} <= permissions
                for tab in feature.tabs:
                    assert [one[0] for one in tabs].count(tab.title) == 1
                if feature.screens:
                    feature.module(feature.screens)


def test_a_record_is_plain_data():
    """Whoever reads one part of it must not import what another part names."""
    known = {"jobs.feature.Feature", "jobs.feature.SealedColumns", "jobs.feature.Tab"}
    with all_faults() as of:
        for path in FOLDER.glob("*/feature.py"):
            with of(path.parent.name):
                assert not relative_imports(path.read_text())
                others = imported(path.read_text()) - known
                assert {name.rpartition(".")[0] for name in others} <= {"queueops.core.moved_rows"}


SURFACES = {"admin", "answers", "api", "examples", "inputs", "serializers"}
TRANSLATORS = ("queueops.screens", "queueops.rest", "rest_framework", "unfold", "jobs.api", "jobs.admin")
OF_THE_LIMITER = re.compile(r"ratelimits\.(\w+\.)?(admin|api|urls)\b")


def translators_in(source: str) -> set[str]:
    own = {f"jobs.features.{folder}.{surface}" for folder in folders() for surface in SURFACES}
    begins = (*TRANSLATORS, *own)
    return {name for name in imported(source) if name.startswith(begins) or OF_THE_LIMITER.match(name)}


def test_a_service_of_a_feature_translates_nothing_and_calls_no_surface():
    with all_faults() as of:
        for path, source in sources().items():
            if path.stem not in SURFACES:
                with of(str(path.relative_to(FOLDER))):
                    assert translators_in(source) == set()
                    levels = relative_imports(source)
                    assert not {one.name for node in levels for one in node.names if node.module is None} & SURFACES
                    assert not {node.module for node in levels} & SURFACES
    assert translators_in("from rest_framework.views import APIView\nfrom jobs.features.flow.api import X") == {
        "rest_framework.views.APIView",
        "jobs.features.flow.api.X",
    }


def test_a_service_of_the_limiter_translates_nothing_and_calls_no_surface():
    folder = ROOT / "ratelimits"
    with all_faults() as of:
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder).with_suffix("").parts
            if not {"admin", "api", "urls", "management"} & {*parts}:
                with of("/".join(parts)):
                    assert translators_in(path.read_text()) == set()
                    assert not {node.module for node in relative_imports(path.read_text())} & {"admin", "api", "urls"}
    assert translators_in("from ratelimits.money.api.budgets import X\nfrom ratelimits import urls") == {
        "ratelimits.money.api.budgets.X",
        "ratelimits.urls",
    }


def test_features_know_of_each_other_only_what_is_listed():
    assert ties_of(sources()) == TIES.keys()


def test_a_tie_that_is_not_listed_is_found():
    planted = {FOLDER / "schedules" / "planted.py": "from jobs.features.webhooks import tell"}
    assert ties_of(sources() | planted) - TIES.keys() == {("schedules", "webhooks")}


def owners() -> dict[str, str]:
    """The feature of each table that one owns."""
    described = [model._meta for model in apps.get_models(include_auto_created=True)]
    parts = {one.db_table: one.model.__module__.split(".") for one in described}
    return {table: part[2] for table, part in parts.items() if part[:2] == ["jobs", "features"]}


def tables_of_others(path: Path, text: str) -> set[str]:
    """Tables that a file of SQL names, and another feature owns, which is no aspect."""
    parts = path.relative_to(ROOT).parts
    own = parts[2] if parts[:2] == ("jobs", "features") else ""
    owned = {table: owner for table, owner in owners().items() if owner not in ASPECTS | {own}}
    return set(re.findall(r"\b[a-z]+_[a-z]+\b", re.sub(r"--.*", "", text))) & owned.keys()


# A provider's batch stands for an executor of its jobs; the log's sums say whether there is more to sum up.
# A job that came back from the archive is needed, and nobody is told again that it has ended.
NAMED_ELSEWHERE = {
    "forget_executors": {"jobs_providerbatch"},
    "look_around": {"jobs_flowcursor"},
    "nothing_needs": {"jobs_restoredjob"},
    "note_ended_jobs": {"jobs_restoredjob"},
}


def test_no_statement_names_a_table_of_another_feature():
    with all_faults() as of:
        for path in [*FILES, *FRAGMENTS]:
            with of(path.stem):
                assert tables_of_others(path, path.read_text()) == NAMED_ELSEWHERE.get(path.stem, set())


def test_a_statement_that_names_a_table_of_another_feature_is_found():
    planted = FOLDER / "schedules" / "sql" / "planted.sql"
    assert tables_of_others(planted, "SELECT FROM jobs_schedule, jobs_webhook, jobs_job") == {"jobs_webhook"}


def test_every_folder_of_the_queue_stands_in_a_layer_or_is_an_aspect_or_an_add_on():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    named = {one["name"]: one for one in contracts}
    services = {path.parent.name for path in (ROOT / "jobs/services").glob("*/__init__.py")}
    layers = named["The queue's services stand in layers"]["layers"]
    assert {f"jobs.services.{name}" for name in services} == {*layers}
    path = named["The path of a job, and what it calls by name, know no add-on"]
    aspects = {name.rpartition(".")[2] for name in path["source_modules"] if name.startswith("jobs.features.")}
    add_ons = {name.rpartition(".")[2] for name in path["forbidden_modules"]}
    assert aspects == ASPECTS
    assert (aspects | add_ons, aspects & add_ons) == (folders(), set())


def test_a_move_looks_whether_people_change_rows_of_features_meanwhile():
    watched = {sort.name for feature in FEATURES for sort in feature.moves if sort.is_watched}
    assert watched == {"objectives", "pauses of maintenance windows", "schedules", "webhooks"}


def test_a_new_feature_is_its_folder_and_one_line(monkeypatch):
    everything.done.clear()
    with_it(monkeypatch, (*FEATURES, PLANTED))
    of_admin = runpy.run_module("queueops.site.admin_theme")["ROOMS"]
    assert [[tab[0] for tab in tabs] for title, _, tabs in of_admin if title == "Batches"] == [
        ["Batches", "Provider batches", "Schedules", "Planted"]
    ]
    assert "planted/" in {str(one.pattern) for one in runpy.run_module("jobs.api.urls")["urlpatterns"]}
    roles = runpy.run_module("jobs.roles")
    assert "jobs.view_planted" in roles["VIEWER"]
    assert "jobs.steer_planted" in roles["OPERATOR"]
    assert "jobs.change_planted" in roles["ADMINISTRATOR"]
    tables = runpy.run_module("queueops.site.moving.tables")
    order = [sort.name for sort in tables["SORTS"]]
    assert order.index("planted") < order.index("jobs") < order.index("its jobs")
    assert "planted" in {sort.name for sort in tables["WATCHED"]}
    assert "jobs_plantedfigure" in tables["STAYS"]
    assert "EXISTS (SELECT FROM jobs_planted)" in written_fragments()["due_of_features"]
    assert everything.PLANTED_ROWS in retention.rules()


@pytest.mark.django_db
def test_executors_do_what_a_new_feature_asks_for(monkeypatch):
    everything.done.clear()
    with_it(monkeypatch, (PLANTED,))
    executor = duties.Duties(uuid4(), sweep_seconds=1000, silent_seconds=30, stuck_seconds=30)
    executor.do(time.monotonic())
    executor.stop()
    assert {*everything.done} == {
        "rounds are made",
        "duty",
        "duty of its own",
        "round",
        "watch",
        "rounds are over",
    }


def with_it(monkeypatch: pytest.MonkeyPatch, features: tuple[Feature, ...]) -> None:
    """As if jobs/features/__init__.py had its line."""
    places: Iterable[Any] = (jobs.features, duties, watch, retention, written_fragments.__globals__)
    for place in places:
        if isinstance(place, dict):
            monkeypatch.setitem(place, "FEATURES", features)
        else:
            monkeypatch.setattr(place, "FEATURES", features)
    retention._of_features.cache_clear()
    monkeypatch.setattr(retention, "_of_features", retention._of_features.__wrapped__)
