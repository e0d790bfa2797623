"""
The record in which a feature declares what it adds to QueueOps.

Each feature has a record in `jobs/features/<name>/feature.py`, with names and plain data. A reader of records resolves
only the names that it needs, so that an executor imports neither screens nor the API. The readers:

- jobs/api/urls.py: the addresses of the API
- jobs/admin/__init__.py, queueops/site/admin_theme.py: screens, and their place in the side bar
- jobs/roles.py: permissions
- jobs/executor/duties.py: duties
- jobs/models/fragments.py: conditions and tables of features that go into SQL statements
- jobs/features/watches/watch.py: watches
- jobs/services/upkeep/retention.py: how long rows are kept
- queueops/site/moving/tables.py: which rows go with a project that moves
- jobs/features/encryption/encrypt_payloads.py: which columns are sealed
- jobs/features/erasure/erase_user.py: which rows belong to an end user
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol

from queueops.core.moved_rows import Sort


class OwnRounds(Protocol):
    """A feature's work that takes its duties by itself; each executor has one instance."""

    def do(self, now: float) -> object:
        """Do what is due; called each second with the monotonic clock's time."""

    def stop(self) -> object:
        """Stop, because the executor ends."""


@dataclass(frozen=True, slots=True)
class Tab:
    """
    A screen's place in the side bar.

    Attributes:
        title: The tab's label.
        model: `<app>_<model>`; people who may view this model see the tab.
        after: The model of the tab before this one, or the title of an entry whose first tab this is.
    """

    title: str
    model: str
    after: str


@dataclass(frozen=True, slots=True)
class SealedColumns:
    """
    Columns of a table that hold sealed values.

    Attributes:
        whole, written: JSON, sealed as a whole: in columns of type JSON, and of type text.
        parts, texts: JSON, and text, of which parts are sealed.
        contents: Bytes, sealed as a whole.
        rows: An SQL condition that finds the project's rows that may have sealed values.
    """

    table: str
    whole: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    contents: tuple[str, ...] = ()
    rows: str = "true"

    @property
    def wholes(self) -> tuple[str, ...]:
        return (*self.whole, *self.written)


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """
    One feature's additions. Names are relative to the feature's package, such as `api.ScheduleList`.

    Attributes:
        package: The dotted path of the feature's package.
        page: The guide to the feature, below docs/; for readers of the code.
        addresses: Paths of the API below /api/v1/, each with its view.
        screens: The module that registers the admin screens; empty: the feature has none.
        tabs: The screens' places in the side bar.
        viewer, operator, administrator: The permissions that each of these roles gets, without `jobs.`.
        duties: Work that one executor does for all each second: functions, or classes with a `do`, made once per
            executor.
        rounds: Classes of OwnRounds, made with the executor's id and its OutcomeLog.
        due: Conditions in SQL: whether a duty has something to do. An idle executor asks all of them at once.
        watches: Functions that look for trouble every few seconds.
        retention: RetentionRules, for tables that grow.
        goes_with_jobs: Tables with a `job_id`, whose rows are deleted with their jobs.
        keeps_batches: Tables with a `batch_id`, whose rows keep an ended batch from being deleted.
        moves: The sorts of rows that move with a project to another installation.
        stays: Tables with a project whose rows stay behind when it moves, with the reason that people are shown.
        sealed: Columns with sealed values, of tables with a `project_id`.
        of_user: Functions of a project's id and an end user's id; they yield the UserRows of that user.
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
    sealed: tuple[SealedColumns, ...] = ()
    of_user: tuple[str, ...] = ()

    def module(self, name: str) -> Any:
        return import_module(f"{self.package}.{name}")

    def find(self, name: str) -> Any:
        """Return the object of this name, such as `api.ScheduleList`, relative to the package."""
        module, _, attribute = name.rpartition(".")
        return getattr(self.module(module), attribute)
