"""
Rows of an end user, as features name them for the erasure of the user.

Another project may know the same user, so rows whose text names the user are told apart by the project.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from django.db.models import Exists, OuterRef, Q, QuerySet, TextField
from django.db.models.functions import Cast

from jobs.models import Job
from queueops.core.sealing import MARK, open_json
from queueops.tenancy.models import Project
from ratelimits.models import CallTally, UsageTracking

OPENED_AT_ONCE = 100  # sealed values in memory
PSEUDONYM = object()  # in `becomes`, the placeholder of the pseudonym


class UserRows(NamedTuple):
    """
    Attributes:
        name: What the rows are, in the plural.
        becomes: Columns with the values that they get. None: the rows are deleted. A function takes the user out of
            the rows, in a transaction of its own, and returns how many rows had the user.
    """

    name: str
    rows: QuerySet[Any]
    becomes: Mapping[str, Any] | Callable[[QuerySet[Any]], int] | None = None


def naming(rows: QuerySet[Any], column: str, text: str) -> QuerySet[Any]:
    """Rows whose column has the text somewhere; as a query by keys, so that two such queries can be joined by `|`."""
    return rows.filter(pk__in=_as_text(rows, column).filter(as_text__contains=text).values("pk"))


def naming_opened(rows: QuerySet[Any], column: str, text: str) -> QuerySet[Any]:
    """
    As `naming`, for a column with sealed values, into which SQL cannot look.

    They are opened here and not sent to the database, whose logs must not show them.

    Raises:
        SealedAway
    """
    sealed = [pk for pk, opened in opened_texts(rows, column) if text in opened]
    return naming(rows, column, text) | rows.filter(pk__in=sealed)


def opened_texts(rows: QuerySet[Any], column: str) -> Iterator[tuple[Any, str]]:
    """The keys of the rows whose column has a sealed value, each with its opened text. Raises SealedAway."""
    sealed = _as_text(rows, column).filter(as_text__contains=MARK).values_list("pk", "as_text")
    for pk, stored in sealed.iterator(chunk_size=OPENED_AT_ONCE):
        yield pk, open_json(stored)


def _as_text(rows: QuerySet[Any], column: str) -> QuerySet[Any]:
    annotated: QuerySet[Any] = rows.annotate(as_text=Cast(column, TextField()))
    return annotated


class RowsOfUser:
    """A user as one project knows them."""

    def __init__(self, project_id: str, user_id: UUID) -> None:
        self.project_id, self.user_id = project_id, user_id
        others = Project.objects.exclude(pk=project_id)
        self._others = frozenset(others.values_list("pk", flat=True))
        theirs = {"project_id": OuterRef("pk"), "user_id": user_id}
        known = Exists(Job.objects.filter(**theirs)) | Exists(UsageTracking.objects.filter(**theirs))
        self._is_shared = others.filter(known).exists()

    def naming(self, rows: QuerySet[Any], projects: Callable[[Any], Collection[str]]) -> QuerySet[Any]:
        """Rows that name this project, or name no other QueueOps project. A provider's project does not count."""
        return _chosen(rows, lambda row: self._is_ours(frozenset(projects(row))))

    def counting(self, rows: QuerySet[Any], keys: Callable[[Any], str]) -> QuerySet[Any]:
        """
        As `naming`, by the projects in keys of limits. Rows without a project are erased with the last project that has
        the user.
        """

        def counted(row: Any) -> bool:
            named = frozenset(re.findall(r"project:([^/'\"]+)", keys(row)))
            return self.project_id in named or (not self._is_shared and self._is_ours(named))

        return _chosen(rows, counted)

    def tallies(self) -> QuerySet[CallTally]:
        """Tallies of calls for this project. Tallies under a provider's project are chosen as in `counting`."""
        own = Q(project=self.project_id)
        return CallTally.objects.filter(
            own if self._is_shared else own | ~Q(project__in=self._others), user=str(self.user_id)
        )

    def _is_ours(self, named: frozenset[str]) -> bool:
        return self.project_id in named or not named & self._others


def _chosen(rows: QuerySet[Any], fits: Callable[[Any], bool]) -> QuerySet[Any]:
    return rows.filter(pk__in=[row.pk for row in rows if fits(row)])
