"""The admin screen of maintenance windows, which are pauses by calendar."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any
from uuid import UUID

from django import forms
from django.contrib import admin, messages
from django.http import HttpRequest
from django.utils.html import format_html
from django.utils.safestring import SafeString
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget

from jobs.features.windows import windows
from jobs.models import MaintenanceWindow
from jobs.services.operate.names_heard import NAMED_BY_SCOPE, unheard_of_scope
from jobs.times.calendar import DAYS
from queueops.core.clock import database_moment
from queueops.core.postgres.zones import zone_of
from queueops.screens import formatting
from queueops.screens.admin import ServiceFormAdmin
from queueops.screens.forms import CheckedForm, OptionalReasonForm, SuggestingWidget
from queueops.screens.verbs import Verb, VerbOutcome, actor_of, on_one, on_selected
from ratelimits.limits.known_names import suggested


def _end(ids: Sequence[UUID], *, actor: str, reason: str) -> VerbOutcome:
    for pk in ids:
        windows.end_window(pk, actor=actor, reason=reason)
    return VerbOutcome(len(ids))


END = Verb(
    name="end",
    permission="jobs.change_maintenancewindow",
    label="End now",
    done="ended",
    explains="Its work may start again, unless something else holds it. A weekly one comes again at its next time.",
    icon="play_arrow",
    applies=lambda rows: rows.filter(switches__isnull=False),
    unfit="not open",
    carry_out=_end,
    form=OptionalReasonForm,
)


class WindowForm(CheckedForm):
    weekdays = forms.TypedMultipleChoiceField(
        choices=[(place, day.title()) for place, day in enumerate(DAYS)],
        coerce=int,
        required=False,
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
        help_text="The days on which it begins.",
    )

    class Meta:
        model = MaintenanceWindow
        fields = windows.FIGURES
        widgets = {"key": SuggestingWidget(partial(suggested, *NAMED_BY_SCOPE.values()))}

    def check_row(self) -> None:
        windows.check_window(self.instance)


@admin.register(MaintenanceWindow)
class MaintenanceWindowAdmin(ServiceFormAdmin):
    form = WindowForm
    list_display = ("covers", "when", "stands", "next_at", "reason")
    list_display_links = ("covers",)
    list_prefetch_related = ("switches",)
    sortable_by = ()
    list_filter = ("scope",)
    search_fields = ("key", "reason")
    search_help_text = "A part of what it pauses, or of its reason"
    actions = ("end_selected",)
    actions_detail = ("end",)
    end_selected, end = on_selected(END), on_one(END)
    empty_title = "There are no maintenance windows."
    empty_hint = "One pauses a project, service, kind or everything from a time to another, once or every week."
    change_form_outer_before_template = "admin/jobs/maintenancewindow/times.html"
    fieldsets = (
        ("What it pauses", {"fields": ("scope", "key", "reason")}),
        ("Once", {"fields": ("begins_at", "ends_at")}),
        (
            "Or every week",
            {
                "fields": ("weekdays", "since", "until", "time_zone"),
                "description": "Where clocks are moved, both ends are at what the clock on the wall shows.",
            },
        ),
    )

    def get_queryset(self, request: HttpRequest) -> Any:
        return super().get_queryset(request).prefetch_related("switches")

    def shown_of(self, request: HttpRequest, row: MaintenanceWindow) -> dict[str, Any]:
        zone = zone_of(row.time_zone)
        return {
            "badge": self.stands(row),
            "fault": row.zone_fault,
            "spans": [
                (
                    f"{span.begins_at.astimezone(zone):%a %Y-%m-%d %H:%M %Z}",
                    f"{span.ends_at.astimezone(zone):%a %Y-%m-%d %H:%M %Z}",
                    formatting.ago(span.begins_at),
                )
                for span in windows.next_spans(row)
            ],
        }

    def save_model(self, request: HttpRequest, obj: MaintenanceWindow, form: WindowForm, change: bool) -> None:  # noqa: FBT001 - Django's signature
        figures = {name: form.cleaned_data[name] for name in windows.FIGURES}
        obj.pk = windows.save_window(obj.pk if change else None, figures, actor=actor_of(request)).pk
        if "key" in form.changed_data or "scope" in form.changed_data:
            for told in unheard_of_scope(obj.scope, obj.key):
                messages.warning(request, f"{told} The window holds nothing until then.")

    def delete_model(self, request: HttpRequest, obj: MaintenanceWindow) -> None:
        windows.delete_window(obj.pk, actor=actor_of(request))

    @admin.display(description="pauses")
    def covers(self, row: MaintenanceWindow) -> str:
        return "everything" if row.scope == MaintenanceWindow.Scope.GLOBAL else str(row)

    @admin.display(description="when")
    def when(self, row: MaintenanceWindow) -> SafeString:
        if row.begins_at and row.ends_at:
            begins, ends = f"{row.begins_at:%Y-%m-%d %H:%M}", f"{row.ends_at:%Y-%m-%d %H:%M} UTC"
            return format_html("<span>once, {} to {}</span>", begins, ends)
        days = ", ".join(DAYS[day].title() for day in sorted(row.weekdays))
        times = f"{row.since:%H:%M} to {row.until:%H:%M}" if row.since and row.until else ""
        return format_html('<span>{} {} <span class="qo-muted">{}</span></span>', days, times, row.time_zone)

    @admin.display(description="is")
    def stands(self, row: MaintenanceWindow) -> SafeString:
        if not row.is_told:
            return formatting.badge("red", "block", "unknown time zone")
        if row.switches.all():
            return formatting.badge("amber", "pause", "open")
        if row.next_change_at is None:
            return formatting.badge("grey", "event_busy", "over")
        return formatting.badge("blue", "event", "to come")

    @admin.display(description="next change")
    def next_at(self, row: MaintenanceWindow) -> SafeString | str:
        if row.next_change_at and row.next_change_at < database_moment():
            return "now"
        return formatting.ago(row.next_change_at)
