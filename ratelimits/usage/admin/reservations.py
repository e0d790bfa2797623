"""Reservations: what is set aside now, and what became of the others."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.db.models import Q, QuerySet
from django.http import HttpRequest
from django.utils.safestring import SafeString

from queueops.screens import formatting
from queueops.screens.admin import QueueAdmin
from queueops.screens.columns import column, time_column
from queueops.screens.filters import Choice, ProjectFilter, UserFilter
from queueops.screens.one_page import OnePage
from queueops.screens.paging import BoundedChangeList, BoundedListMixin, IdSearchMixin, as_uuid
from queueops.screens.verbs import ReadOnlyMixin, on_one, on_selected
from ratelimits.models import UsageReservation

from .filters import MonthFilter
from .parts import amount, month_link, tell_units
from .verbs import CANCEL

Status = UsageReservation.Status
EVERY_STATE = "any"
SIGNS: dict[str, tuple[str, str]] = {
    Status.ACTIVE: ("blue", "hourglass_top"),
    Status.CONFIRMED: ("green", "check"),
    Status.CANCELLED: ("grey", "block"),
    Status.EXPIRED: ("amber", "timer_off"),
}


class ReservationStateFilter(Choice):
    """Selects active reservations unless another choice is made, because they hold something."""

    title = "state"
    parameter_name = "status"
    all_option = ["", "active"]
    choices_offered = (*(choice for choice in Status.choices if choice[0] != Status.ACTIVE), (EVERY_STATE, "all"))

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        if self.value() == EVERY_STATE or request.GET.get("q"):
            return queryset
        return queryset.filter(status=self.value() or Status.ACTIVE)


class FirstToExpire(OnePage):
    """Reads active reservations by an index of active ones only, so that ended ones do not slow a page."""

    first_words, next_words = "First to expire", "Later"

    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[str]:
        return ["expires_at", "pk"]

    def start_of(self, text: str) -> tuple[datetime, UUID] | None:
        moment, _, key = text.partition("_")
        identifier = as_uuid(key)
        try:
            expires_at = datetime.fromisoformat(moment)
        except ValueError:
            return None
        return (expires_at, identifier) if identifier and expires_at.tzinfo else None

    def rows_beyond(self, start: tuple[datetime, UUID]) -> QuerySet[Any]:
        moment, identifier = start
        later = Q(expires_at__gt=moment) | Q(expires_at=moment, pk__gt=identifier)
        # The second condition implies the first, but only the first tells PostgreSQL where to begin in the index.
        rows: QuerySet[Any] = self.queryset.filter(expires_at__gte=moment).filter(later)
        return rows

    def place_of(self, row: UsageReservation) -> str:
        return f"{row.expires_at.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}_{row.pk}"


@admin.register(UsageReservation)
class UsageReservationAdmin(ReadOnlyMixin, IdSearchMixin, BoundedListMixin, QueueAdmin):
    list_display = ("reservation", "state", "of_project", "of_month", "held", "made", "expires")
    list_display_links = ("reservation",)
    list_filter = (ReservationStateFilter, ProjectFilter, UserFilter, MonthFilter)
    list_filter_submit = True
    search_fields = ("pk",)
    search_help_text = "A reservation's id, in full"
    empty_title = "Nothing is reserved."
    empty_hint = "Reservations that hold a part of an allowance appear here until their event comes or they expire."
    actions = ("cancel_selected",)
    actions_detail = ("cancel",)
    fields = ("id", "state", "of_project", "of_month", "held", "left_then", "made", "expires", "idempotency_key")
    readonly_fields = fields

    cancel_selected, cancel = on_selected(CANCEL), on_one(CANCEL)

    def audit_targets(self, row: UsageReservation) -> list[str]:
        return [f"reservation {row.pk}"]

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[Any]:
        active = not request.GET.get("status") and not request.GET.get("q")
        return FirstToExpire if active else BoundedChangeList

    def prepare_rows(self, rows: list[UsageReservation]) -> None:
        tell_units(rows)

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        reservation = super().get_object(request, object_id, from_field) if as_uuid(object_id) else None
        if reservation is not None:
            self.prepare_rows([reservation])
        return reservation

    @admin.display(description="reservation")
    def reservation(self, reservation: UsageReservation) -> SafeString:
        return formatting.short_id(reservation.pk)

    @admin.display(description="state")
    def state(self, reservation: UsageReservation) -> SafeString:
        return formatting.badge(*SIGNS.get(reservation.status, formatting.LATER), reservation.status)

    of_month = column("user and month", month_link)

    @admin.display(description="amount")
    def held(self, reservation: UsageReservation) -> str:
        return amount(reservation.amount, reservation.unit)

    @admin.display(description="left after it")
    def left_then(self, reservation: UsageReservation) -> str:
        return amount(reservation.remaining, reservation.unit)

    made = time_column("made", "created_at")

    @admin.display(description="expires")
    def expires(self, reservation: UsageReservation) -> SafeString | str:
        waits = reservation.status in (Status.ACTIVE, Status.EXPIRED)
        return formatting.ago(reservation.expires_at) if waits else formatting.NOTHING
