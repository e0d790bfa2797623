"""
The admin's lists of rows, for tables with millions of rows.

Nothing counts a large table. Pages go by id, newest first, so that a page costs the same however deep it is. A filter
without an index of its own looks through windows of WINDOW rows, newest first. After MAX_WINDOWS_OF_A_PAGE, or
SEARCH_SECONDS, the page stops and offers to look further back, whatever filters are combined.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.core.paginator import Paginator
from django.db.models import QuerySet
from django.db.models.functions import Coalesce
from django.http import HttpRequest
from django.utils.functional import cached_property
from unfold.contrib.filters.admin import RangeDateTimeFilter
from unfold.utils import parse_datetime_str
from unfold.views import ChangeList

from queueops.core.values.identifiers import first_id_at, time_of

from .admin import QueueAdmin

WINDOW = 50_000
MAX_WINDOWS_OF_A_PAGE = 10  # looked through for one page; about 25 ms each from memory
SEARCH_SECONDS = 0.25  # after this, no further window is begun: one window from a cold disk may take as long
MAX_LISTED_COUNTED = 10_000  # rows counted, in some milliseconds, if only the default narrows a list
BEFORE = "before"
MAX_NUMBER_LENGTH = 19  # a bigint's digits

# Parameters of a list's address that do not filter.
NOT_FILTERS = ("before", "p", "o", "all")
# An id takes its time from a web process's clock, created_at from the database's: the two may differ.
CLOCK_SLACK = timedelta(hours=1)


def _label_of(spec: Any, value: str) -> str:
    """Return a filter's own word for a value; a filter that lists the values in use has no words."""
    pairs = (one for one in getattr(spec, "lookup_choices", ()) if isinstance(one, tuple | list))
    return next((str(label) for choice, label in pairs if str(choice) == value), value)


class OlderPages(Paginator):  # type: ignore[type-arg]
    """Replaces Django's paginator, which counts rows; the changelist already has its page."""

    template_name = "admin/kit/older_pages.html"

    @property
    def count(self) -> int:
        return len(self.object_list)


class TypedChangeList(ChangeList):
    pass


class BoundedChangeList(TypedChangeList):
    """
    A list that shows one page, by id.

    Attributes:
        older_before: The next page's `before`; None on the last.
        searched_back_to: The time at which the search stopped, if older rows may match too; else None.
    """

    first_words, next_words = "Newest", "Older"
    older_before: Any = None
    searched_back_to: datetime | None = None

    def get_filters_params(self, params: Any = None) -> dict[str, Any]:
        wanted: dict[str, Any] = super().get_filters_params(params)
        wanted.pop(BEFORE, None)
        return wanted

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[str]:
        return ["-pk"]

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request, exclude_parameters)
        return rows.defer(*self.model_admin.list_defer)

    def get_results(self, request: HttpRequest) -> None:
        size = self.list_per_page
        before = first = self.model_admin.key_of(self.params.get(BEFORE, ""))
        found: list[Any] = []
        until = time.monotonic() + SEARCH_SECONDS
        for _ in range(MAX_WINDOWS_OF_A_PAGE):
            rows, horizon = self._bounded(before)
            found += rows[: size + 1 - len(found)]
            if len(found) > size or horizon is None or time.monotonic() > until:
                break
            before = horizon
        self.result_list = found[:size]
        if len(found) > size:
            self.older_before = found[size - 1].pk
        elif horizon is not None:
            self.older_before = horizon
            self.searched_back_to = self.model_admin.time_of_key(horizon)
        self.result_count = self.full_result_count = len(self.result_list)
        self.show_all = self.can_show_all = self.multi_page = False
        self.paginator = OlderPages(self.result_list, size)
        self.is_first_page = first is None
        self.newest_link = self.get_query_string(remove=[BEFORE])
        self.older_link = self.get_query_string({BEFORE: self.older_before}) if self.older_before else None

    @cached_property
    def everything(self) -> str | None:
        """Return in words how many rows the list has, if this page is not all of them and the number is known."""
        if self.query or (self.is_first_page and self.older_link is None):
            return None
        wanted = {name: values[-1] for name, values in self.get_filters_params().items() if values and values[-1]}
        known = self.model_admin.count_rows(wanted)
        if known is not None or wanted:
            return None if known is None else f"{known:,}"
        # Without a chosen filter, a list may show some rows alone, such as open ones. Count them: the planner estimates
        # all rows, as of the last analyze.
        counted = self.queryset.order_by()[: MAX_LISTED_COUNTED + 1].count()
        return f"{counted:,}" if counted <= MAX_LISTED_COUNTED else f"more than {MAX_LISTED_COUNTED:,}"

    @property
    def chips(self) -> list[dict[str, str]]:
        """
        Return the filters that narrow the list. `href` removes a filter; it is empty for a filter that applies by
        default.
        """
        chips = []
        for spec in self.filter_specs:
            names = [name for name in spec.expected_parameters() if self.params.get(name)]
            title = str(spec.title)
            if names:
                values = " ".join(str(self.params[name]) for name in names)
                words = _label_of(spec, values)
                without = self.get_query_string(remove=[*names, BEFORE])
                chips.append({"title": title, "words": str(words), "href": without})
            elif not self.query and (default := getattr(spec, "all_option", None)) and default[1] != "All":
                chips.append({"title": title, "words": str(default[1]), "href": ""})
        return chips

    def _bounded(self, before: Any) -> tuple[QuerySet[Any], Any]:
        rows = self.queryset if before is None else self.queryset.filter(pk__lt=before)
        if self.query or not self.has_active_filters:
            return rows, None  # the key's index finds a search's row, or the page's first rows
        wanted = {name: values[-1] for name, values in self.get_filters_params().items() if values}
        if self.model_admin.in_order(wanted):
            return rows, None
        exact = self.model_admin.rows_by_index(rows, wanted)
        if exact is not None:
            # Without Coalesce, the planner may read all rows in the key's order to find a few.
            return exact.order_by(Coalesce("pk", "pk").desc()), None
        source = self.model_admin.window_source(wanted)
        for spec in self.filter_specs:
            if isinstance(spec, CreatedFilter):
                source = source.filter(**spec.id_bounds())
        if before is not None:
            source = source.filter(pk__lt=before)
        end = list(source.order_by("-pk").values_list("pk", flat=True)[WINDOW - 1 : WINDOW])
        return (rows.filter(pk__gte=end[0]), end[0]) if end else (rows, None)


class CreatedFilter(RangeDateTimeFilter):
    """Filters by time. Ids are UUIDv7: bounds on them as well let the primary key's index find the rows."""

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if any(self._day(end) and self._moment(end) is None for end in ("from", "to")):
            return queryset.none()  # without a filter, an unreadable date would find every row
        bounds: dict[str, Any] = self.id_bounds()
        for end, lookup in (("from", "created_at__gte"), ("to", "created_at__lte")):
            if moment := self._moment(end):
                bounds[lookup] = moment
        return queryset.filter(**bounds)

    def id_bounds(self) -> dict[str, UUID]:
        bounds = {}
        if since := self._moment("from"):
            bounds["pk__gte"] = first_id_at(since, moved_by=-CLOCK_SLACK)
        if until := self._moment("to"):
            bounds["pk__lte"] = first_id_at(until, moved_by=CLOCK_SLACK)
        return bounds

    def _moment(self, end: str) -> datetime | None:
        """
        Return the moment at one end of the range: a date alone means its first instant, at the range's end its last.
        """
        day, clock = self._day(end), self._given(f"{self.parameter_name}_{end}_1")
        if not day:
            return None
        try:
            moment: datetime | None = parse_datetime_str(
                f"{day} {clock or ('00:00:00' if end == 'from' else '23:59:59')}"
            )
        except ValueError:
            return None
        if moment is None:
            return None
        return moment if moment.tzinfo else moment.replace(tzinfo=UTC)

    def _day(self, end: str) -> str:
        return self._given(f"{self.parameter_name}_{end}_0")

    def _given(self, name: str) -> str:
        value: Any = self.used_parameters.get(name) or ""
        return str(value[-1] if isinstance(value, list) else value)


class BoundedListMixin(QueueAdmin):
    """The list in the admin of a big table. Ids are UUIDv7; for other ids, override `key_of` and `time_of_key`."""

    sortable_by: tuple[str, ...] = ()
    list_defer: tuple[str, ...] = ()

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[BoundedChangeList]:
        return BoundedChangeList

    def rows_by_index(self, rows: QuerySet[Any], wanted: Mapping[str, str]) -> QuerySet[Any] | None:
        """Return the rows if the index of a condition finds few enough of them; None: search by windows."""
        return None

    def count_rows(self, wanted: Mapping[str, str]) -> int | None:
        """Return how many rows these conditions have, or None if no counter says."""
        return None

    def in_order(self, wanted: Mapping[str, str]) -> bool:
        """Whether an index gives the rows of these conditions in the order of the list."""
        return False

    def window_source(self, wanted: Mapping[str, str]) -> QuerySet[Any]:
        """Return the rows from which windows are taken; filter them only by conditions that an index (…, id) serves."""
        rows: QuerySet[Any] = self.model.objects.order_by()
        return rows

    def key_of(self, text: str) -> Any:
        """Return the key in an address's parameter; None: the text is no key."""
        return as_uuid(text)

    def time_of_key(self, key: Any) -> datetime:
        """Return roughly when the row was made."""
        return time_of(key)


class NumberedListMixin(BoundedListMixin):
    """The list of a table whose ids are numbers, given out in the order of time."""

    model: Any

    def key_of(self, text: str) -> int | None:
        return as_number(text)

    def time_of_key(self, key: int) -> datetime:
        nearest = self.model.objects.filter(pk__gte=key).only("created_at").earliest("pk")  # it may be deleted by now
        moment: datetime = nearest.created_at
        return moment


class IdSearchMixin(QueueAdmin):
    """The search of a list by an id in full; anything else finds nothing."""

    def with_id(self, rows: QuerySet[Any], identifier: UUID) -> QuerySet[Any]:
        """Return the rows that a person means by this id."""
        return rows.filter(pk=identifier)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        if not search_term.strip():
            return queryset, False
        identifier = as_uuid(search_term)
        return (self.with_id(queryset, identifier) if identifier else queryset.none()), False


def as_uuid(text: str) -> UUID | None:
    try:
        return UUID(text.strip())
    except ValueError:
        return None


def as_number(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < MAX_NUMBER_LENGTH else None


def filters_of(request: HttpRequest) -> str:
    """Return a list's parameters without paging and order, and without filters that the form left empty."""
    query = request.GET.copy()
    for name in request.GET:
        if name in NOT_FILTERS or not request.GET[name]:
            del query[name]
    return query.urlencode()
