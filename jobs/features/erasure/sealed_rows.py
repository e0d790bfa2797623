"""
Finds rows that name a user, also where their text is sealed.

SQL cannot look into a sealed text. It is opened here and not sent to the database, whose logs must not show it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any
from uuid import UUID

from django.db.models import QuerySet, TextField
from django.db.models.functions import Cast

from jobs.models import Batch, IdempotencyRecord, Job
from queueops.core.sealing import MARK, open_json

OPENED_AT_ONCE = 100
ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def naming(rows: QuerySet[Any], column: str, text: str) -> QuerySet[Any]:
    """Rows whose column has the text somewhere; as a query by keys, so that two such queries can be joined by `|`."""
    return rows.filter(pk__in=_as_text(rows, column).filter(as_text__contains=text).values("pk"))


def naming_opened(rows: QuerySet[Any], column: str, text: str) -> QuerySet[Any]:
    """
    As `naming`, for a column with sealed values.

    Raises:
        SealedAway
    """
    sealed = [pk for pk, opened in _opened(rows, column) if text in opened]
    return naming(rows, column, text) | rows.filter(pk__in=sealed)


def sealed_answers_of(project_id: str, user_id: UUID, archived: Sequence[str]) -> list[int]:
    """
    Sealed answers that delete_answers_of_user.sql would delete if it could read them.

    Raises:
        SealedAway
    """
    found: list[int] = []
    answers = _opened(IdempotencyRecord.objects.filter(project_id=project_id), "answer")
    while some := list(islice(answers, OPENED_AT_ONCE)):
        named = {pk: {UUID(one) for one in ID.findall(opened)} for pk, opened in some}
        ids = set().union(*named.values())
        theirs = {user_id, *map(UUID, archived)}
        for model in (Job, Batch):
            theirs |= set(model.objects.filter(pk__in=ids, user_id=user_id).values_list("pk", flat=True))
        found += [pk for pk, its_ids in named.items() if its_ids & theirs]
    return found


def _opened(rows: QuerySet[Any], column: str) -> Iterator[tuple[Any, str]]:
    sealed = _as_text(rows, column).filter(as_text__contains=MARK).values_list("pk", "as_text")
    for pk, stored in sealed.iterator(chunk_size=OPENED_AT_ONCE):
        yield pk, open_json(stored)


def _as_text(rows: QuerySet[Any], column: str) -> QuerySet[Any]:
    annotated: QuerySet[Any] = rows.annotate(as_text=Cast(column, TextField()))
    return annotated
