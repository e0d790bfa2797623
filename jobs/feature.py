"""
The record in which a feature says what it adds.

It stands in `jobs/features/<name>/feature.py`, and holds names and plain data. A reader resolves only the names that it
needs, so that an executor imports neither screens nor the API. The readers:

- jobs/api/urls.py: the addresses of the API
- jobs/admin/__init__.py, queueops/site/admin_theme.py: screens, and their place in the side bar
- jobs/roles.py: permissions
- jobs/executor/duties.py: duties
- jobs/models/fragments.py: conditions and tables that statements name for features
- jobs/features/watches/watch.py: watches
- jobs/services/upkeep/retention.py: how long rows are kept
- queueops/site/moving/tables.py: which rows go with a project that moves
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol

from queueops.core.moved_rows import Sort


class OwnRounds(Protocol):
    """Work of a feature that each executor offers to do, under duties that it takes itself; made once an executor."""

    def do(self, now: float) -> object:
        """Do what is due; called each second with the monotonic clock's time."""

    def stop(self) -> object:
        """The executor ends."""


@dataclass(frozen=True, slots=True)
class Tab:
    """
    A screen's place in the side bar.

    Attributes:
        title: What the tab is called.
        model: `<app>_<model>`; who may view it sees the tab.
        after: The model of the tab that it follows, or the title of an entry that it begins.
    """

    title: str
    model: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """
    Names are those of the feature's package: `api.ScheduleList`.

    Attributes:
        package: Dotted.
        page: The guide to it, below docs/; for readers of the code.
        addresses: Of the API, below /api/v1/: each with its view.
        screens: The module that registers them; empty: there are none.
        tabs: Where they stand.
        viewer, operator, administrator: The permissions that each of these roles gets, without `jobs.`.
        duties: What one executor does for all each second: functions, or classes made once an executor, with a `do`.
        rounds: Classes of OwnRounds, made with the executor's id and the log of its outcomes.
        due: Conditions in SQL: whether a duty has something to do. An idle executor asks all of them at once.
        watches: Functions that look for trouble every few seconds.
        retention: RetentionRules, for tables that grow.
        goes_with_jobs: Tables with a `job_id`, whose rows are deleted with their jobs.
        keeps_batches: Tables with a `batch_id`, whose rows keep a batch that has ended.
        moves: The sorts of rows that go with a project to another installation.
        stays: Tables that know projects and stay behind, with the reason that people are told.
    """

    package: str
    page: str = ""
    addresses: Mapping[str, str] = field(default_factory=dict)
    screens: str = ""
    tabs: tuple[Tab, ...] = ()
    viewer: tuple[str, ...] = ()
    operator: tuple[str, ...] = ()
    administrator: tuple[str, ...] = ()
    duties: tuple[str, ...] = ()
    rounds: tuple[str, ...] = ()
    due: tuple[str, ...] = ()
    watches: tuple[str, ...] = ()
    retention: tuple[str, ...] = ()
    goes_with_jobs: tuple[str, ...] = ()
    keeps_batches: tuple[str, ...] = ()
    moves: tuple[Sort, ...] = ()
    stays: Mapping[str, str] = field(default_factory=dict)

    def module(self, name: str) -> Any:
        return import_module(f"{self.package}.{name}")

    def find(self, name: str) -> Any:
        """Return what has this name, as `api.ScheduleList`."""
        module, _, attribute = name.rpartition(".")
        return getattr(self.module(module), attribute)
