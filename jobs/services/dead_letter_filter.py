"""Which dead letters an operator means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from jobs.models import DeadLetter
from jobs.querysets import DeadLetterQuerySet
from queueops.core.errors import fields_of
from queueops.core.nul import StorableText

from .errors import InvalidFilter
from .results import MAX_BULK_JOBS


class DeadLetterFilter(BaseModel):
    """Open dead letters that fit everything given; with nothing given, all of them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    project_id: StorableText | None = None
    batch_id: UUID | None = None
    kind: StorableText | None = None
    service: StorableText | None = None
    error_code: StorableText | None = None
    fingerprint: StorableText | None = None
    created_from: AwareDatetime | None = None
    created_until: AwareDatetime | None = None
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
