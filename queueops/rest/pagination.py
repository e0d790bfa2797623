"""Pages by cursor, newest first: no COUNT, and stable while rows arrive."""

from __future__ import annotations

import base64
import binascii
import time
from collections.abc import Iterable, Sequence
from typing import Any

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.db.models.functions import Coalesce
from rest_framework.pagination import BasePagination
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.urls import replace_query_param

from .errors import InvalidQuery

DEFAULT_PAGE_SIZE = 50
MAX_PAGE_SIZE = 500
FIRST_WINDOW = 1_000  # rows that are looked through first: what is frequent is among them
WINDOW = 50_000  # rows that are looked through together after that
MAX_WINDOWS_OF_A_PAGE = 10
SEARCH_SECONDS = 0.25  # after this, a page begins no further window
EXAMPLE_CURSOR = "MDE5MzhhM2MtN2QyZS03YjFhLTljNTUtMGE0YTFmMGQyZTEx"


def fitting(sizes: Iterable[int]) -> int:
    """
    Return how many rows of these sizes make a page of at most QUEUEOPS_MAX_PAGE_MB. A page has at least one row.
    """
    count = total = 0
    for size in sizes:
        total += size
        if count and total > settings.QUEUEOPS.max_page_bytes:
            break
        count += 1
    return count


class NewestFirst(BasePagination):
    """
    Ordered by -id; the cursor is the last id shown, so rows that arrive meanwhile shift nothing.

    A view whose rows may be large has a `weight`, an expression for a row's bytes: a page ends before it exceeds
    QUEUEOPS_MAX_PAGE_MB. A view sets `finds_first` if an index other than the key's finds its rows: they are then
    sorted afterwards.
    A view names in `looks_through` all rows among which a filter without an index searches. A page then ends after
    some windows of these rows, even if it is empty, and the next page goes on there.
    """

    parameters = frozenset({"cursor", "page_size"})
    default_size, max_size = DEFAULT_PAGE_SIZE, MAX_PAGE_SIZE

    def paginate_queryset(self, queryset: Any, request: Request, view: Any = None) -> list[Any]:
        size = self._page_size(request.query_params.get("page_size"))
        cursor = request.query_params.get("cursor")
        after = self.decode(cursor, queryset) if cursor else None
        rows, last = self.page(queryset, after=after, size=size, view=view)
        self._next_cursor = None if last is None else self.encode(last)
        self._address = request.build_absolute_uri()
        return rows

    def page(self, rows: QuerySet[Any], *, after: Any, size: int, view: Any) -> tuple[list[Any], Any]:
        """
        Returns:
            The rows of a page, and the key after which the next one begins; None on the last page.
        """
        weight = getattr(view, "weight", None)
        light = rows if weight is None else self.places(rows).annotate(weighs=weight)
        if (every := getattr(view, "looks_through", None)) is not None:
            found, last = self._look_through(light, every, after=after, size=size)
        else:
            found, last = self._first_of(light, after=after, size=size, view=view)
        return (found, last) if weight is None else self._not_too_large(rows, found, last)

    def _first_of(self, rows: QuerySet[Any], *, after: Any, size: int, view: Any) -> tuple[list[Any], Any]:
        if after is not None:
            rows = self.behind(rows, after)
        # With the bare key, the planner may read all rows from the newest to the oldest to find a few.
        rows = rows.order_by(Coalesce("pk", "pk").desc()) if getattr(view, "finds_first", False) else self.ordered(rows)
        found = list(rows[: size + 1])
        return found[:size], self.place_of(found[size - 1]) if len(found) > size else None

    def ordered(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Order rows as the list shows them; a list of another order has its own form of these four methods."""
        return rows.order_by("-pk")

    def place_of(self, row: Any) -> Any:
        """Return the place of a row in the list, which a cursor names."""
        return row.pk

    def behind(self, rows: QuerySet[Any], place: Any) -> QuerySet[Any]:
        return rows.filter(pk__lt=place)

    def down_to(self, rows: QuerySet[Any], place: Any) -> QuerySet[Any]:
        return rows.filter(pk__gte=place)

    def _look_through(
        self, rows: QuerySet[Any], every: QuerySet[Any], *, after: Any, size: int
    ) -> tuple[list[Any], Any]:
        """Do what `page` does, in windows of `every`: a rare value would be looked for among all rows of a project."""
        found: list[Any] = []
        until = time.monotonic() + SEARCH_SECONDS
        for width in [FIRST_WINDOW, *[WINDOW] * MAX_WINDOWS_OF_A_PAGE]:
            older, within = (every, rows) if after is None else (self.behind(every, after), self.behind(rows, after))
            end = list(self.ordered(self.places(older))[width - 1 : width])
            within = self.down_to(within, self.place_of(end[0])) if end else within
            found += self.ordered(within)[: size + 1 - len(found)]
            if len(found) > size:
                return found[:size], self.place_of(found[size - 1])
            if not end:
                return found, None
            after = self.place_of(end[0])
            if time.monotonic() > until:
                break
        return found, after

    def places(self, rows: QuerySet[Any]) -> QuerySet[Any]:
        """Return rows with no more than what tells their places."""
        return rows.only("pk")

    def _not_too_large(self, rows: QuerySet[Any], found: Sequence[Any], last: Any) -> tuple[list[Any], Any]:
        """Return the page's rows with their contents, and where it ends."""
        kept = found[: fitting(row.weighs for row in found)]
        whole = list(self.ordered(rows.filter(pk__in=[row.pk for row in kept])))
        return whole, last if len(kept) == len(found) else self.place_of(kept[-1])

    def _page_size(self, given: str | None) -> int:
        if given is None:
            return self.default_size
        if given.isascii() and given.isdigit() and len(given) < 10 and 1 <= int(given) <= self.max_size:  # noqa: PLR2004
            return int(given)
        raise InvalidQuery(fields={"page_size": [f"a whole number from 1 to {self.max_size}"]})

    def encode(self, last: object) -> str:
        return base64.urlsafe_b64encode(str(last).encode()).decode().rstrip("=")

    def decode(self, cursor: str, queryset: QuerySet[Any]) -> Any:
        """
        Raises:
            InvalidQuery: The text is no cursor of this list.
        """
        try:
            text = base64.urlsafe_b64decode(cursor.encode("ascii") + b"==").decode().replace("\0", "")
            return self.read(text, queryset)
        except (ValueError, binascii.Error, ValidationError):
            raise InvalidQuery(fields={"cursor": ["not a cursor of this list"]}) from None

    def read(self, text: str, queryset: QuerySet[Any]) -> Any:
        """
        Raises:
            ValidationError: It names no place of this list.
        """
        return queryset.model._meta.pk.clean(text, None)  # noqa: SLF001 (Django's documented API)

    def get_paginated_response(self, data: Sequence[Any]) -> Response:
        cursor = self._next_cursor
        return Response(
            {
                "results": data,
                "next_cursor": cursor,
                "next": replace_query_param(self._address, "cursor", cursor) if cursor else None,
            }
        )

    def get_paginated_response_schema(self, schema: dict[str, Any]) -> dict[str, Any]:
        return {
            "type": "object",
            "required": ["results", "next_cursor", "next"],
            "properties": {
                "results": schema,
                "next_cursor": {
                    "type": ["string", "null"],
                    "description": "Null on the last page.",
                    "example": EXAMPLE_CURSOR,
                },
                "next": {
                    "type": ["string", "null"],
                    "format": "uri",
                    "example": f"https://queue.example.org/api/v1/…/?cursor={EXAMPLE_CURSOR}",
                },
            },
        }

    def get_schema_operation_parameters(self, view: Any) -> list[dict[str, Any]]:
        return [
            {
                "name": "cursor",
                "in": "query",
                "description": "`next_cursor` of the page before.",
                "schema": {"type": "string"},
            },
            {
                "name": "page_size",
                "in": "query",
                "schema": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": MAX_PAGE_SIZE,
                    "default": DEFAULT_PAGE_SIZE,
                },
            },
        ]
