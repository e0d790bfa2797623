"""Lists that count no rows: one page at a time, by the primary key."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db.models import QuerySet
from django.http import HttpRequest

from queueops.screens.paging import BEFORE, OlderPages, TypedChangeList, as_number

AFTER = "after"


class OnePage(TypedChangeList):
    """A list in the order of the keys. A page begins after the key in the parameter `after`."""

    parameter: ClassVar = AFTER
    order: ClassVar = "pk"
    beyond: ClassVar = "pk__gt"
    first_words, next_words = "First", "More"
    searched_back_to = None
    everything = None

    def get_filters_params(self, params: Any = None) -> dict[str, Any]:
        wanted: dict[str, Any] = super().get_filters_params(params)
        wanted.pop(self.parameter, None)
        return wanted

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[str]:
        return [self.order]

    def get_results(self, request: HttpRequest) -> None:
        start = self.start_of(str(self.params.get(self.parameter, "")))
        rows = self.rows_beyond(start) if start else self.queryset
        found = list(rows[: self.list_per_page + 1])
        self.result_list = found[: self.list_per_page]
        self.result_count = self.full_result_count = len(self.result_list)
        self.show_all = self.can_show_all = self.multi_page = False
        self.paginator = OlderPages(self.result_list, self.list_per_page)
        self.is_first_page = not start
        self.newest_link = self.get_query_string(remove=[self.parameter])
        more = len(found) > self.list_per_page
        self.older_link = self.get_query_string({self.parameter: self.place_of(self.result_list[-1])}) if more else None

    def start_of(self, text: str) -> Any:
        """Return the key after which the page begins; empty: it is the first page."""
        return text.replace("\0", "")

    def rows_beyond(self, start: Any) -> QuerySet[Any]:
        rows: QuerySet[Any] = self.queryset.filter(**{self.beyond: start})
        return rows

    def place_of(self, row: Any) -> Any:
        """Return a row's key, which `start_of` reads from the address."""
        return row.pk


class NewestPage(OnePage):
    """A list by number, newest first. A page begins below the number in the parameter `before`."""

    parameter = BEFORE
    order = "-pk"
    beyond = "pk__lt"
    first_words, next_words = "Newest", "Older"

    def start_of(self, text: str) -> Any:
        return as_number(text) or 0
