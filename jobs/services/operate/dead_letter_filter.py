"""Finds the dead letters that an operator means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from pydantic import Field, ValidationError

from jobs.errors import InvalidFilter
from jobs.models import DeadLetter
from jobs.querysets import DeadLetterQuerySet
from jobs.services.submit.results import MAX_BULK_JOBS
from queueops.core.errors import fields_of
from queueops.core.values.moments import Moment
from queueops.core.values.narrowing import Narrowing, SearchedText


class DeadLetterFilter(Narrowing):
    """Open dead letters that fit everything given; with nothing given, all of them."""

    project_id: SearchedText | None = None
    batch_id: UUID | None = None
    kind: SearchedText | None = None
    service: SearchedText | None = None
    error_code: SearchedText | None = None
    fingerprint: SearchedText | None = None
    created_from: Moment | None = None
    created_until: Moment | None = None
    ids: tuple[UUID, ...] | None = Field(default=None, max_length=MAX_BULK_JOBS)

    def letters(self) -> DeadLetterQuerySet:
        given = self.model_dump(exclude_none=True, exclude={"created_from", "created_until", "ids"})
        letters = DeadLetter.objects.open().filter(**given)
        if self.created_from is not None:
            letters = letters.filter(created_at__gte=self.created_from)
        if self.created_until is not None:
            letters = letters.filter(created_at__lte=self.created_until)
        if self.ids is not None:
            letters = letters.filter(pk__in=self.ids)
        return letters


def parse_filter(given: DeadLetterFilter | Mapping[str, Any]) -> DeadLetterFilter:
    """
    Read a filter from parsed JSON.

    Raises:
        InvalidFilter: With the path of each bad field.
    """
    if isinstance(given, DeadLetterFilter):
        return given
    try:
        return DeadLetterFilter.model_validate(given)
    except ValidationError as error:
        raise InvalidFilter(fields=fields_of(error)) from None
