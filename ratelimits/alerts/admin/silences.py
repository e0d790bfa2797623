"""Silencing alerts, and the list of what is silenced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django import forms
from django.contrib import admin
from unfold.widgets import UnfoldAdminCheckboxSelectMultipleWidget, UnfoldAdminSelectWidget

from queueops.core.clock import Now
from queueops.screens.admin import QueueAdmin
from queueops.screens.columns import column, time_column
from queueops.screens.forms import ReasonForm, set_choices
from queueops.screens.verbs import ReadOnlyMixin, Verb, VerbOutcome, by_ids, on_one, on_selected
from queueops.tenancy.people import name_of
from ratelimits.alerts.silences import end_silences, silence_alerts
from ratelimits.models import AlertSilence, Limit, QuotaAlert

LASTS = ((1, "1 hour"), (4, "4 hours"), (24, "1 day"), (168, "7 days"))


class SilenceForm(ReasonForm):
    """Offers to silence the alert's limit, kind and projects, each alone or together."""

    hours = forms.TypedChoiceField(label="For", choices=LASTS, coerce=float, widget=UnfoldAdminSelectWidget)
    of = forms.MultipleChoiceField(
        label="Which alerts",
        widget=UnfoldAdminCheckboxSelectMultipleWidget,
        help_text="Those that fit everything that is chosen.",
    )
    field_order = ("of", "hours", "reason")

    def __init__(self, *args: Any, rows: Sequence[Any] = (), **kwargs: Any) -> None:
        super().__init__(*args, rows=rows, **kwargs)
        offered = [choice for alert in rows[:1] for choice in _offered(alert)]
        set_choices(self, "of", offered)
        self.fields["of"].initial = [value for value, _ in offered if not value.startswith("project:")]


def _offered(alert: QuotaAlert) -> list[tuple[str, str]]:
    """Return the choices by which an alert can be silenced: its limit, its kind, its projects."""
    limit = [(f"limit:{alert.limit_id}", f"of the limit {alert.limit}")] if alert.limit_id else []
    projects = [(f"project:{one}", f"of the project {one}") for one in sorted(alert.projects)]
    return [*limit, (f"kind:{alert.kind}", f"of the kind: {alert.get_kind_display()}"), *projects]


def _silence(ids: Sequence[int], *, actor: str, of: Sequence[str], hours: float, reason: str) -> VerbOutcome:
    named = dict(one.split(":", 1) for one in of)
    silence = silence_alerts(
        limit=Limit.objects.filter(pk=named["limit"]).first() if "limit" in named else None,
        kind=named.get("kind", ""),
        project=named.get("project", ""),
        hours=hours,
        actor=actor,
        reason=reason,
    )
    return VerbOutcome(1, report=f"Nobody is told of alerts of {silence} until {silence.until:%Y-%m-%d %H:%M} UTC.")


SILENCE = Verb(
    name="silence",
    permission="ratelimits.acknowledge_alert",
    label="Silence",
    done="silenced",
    explains="Nobody is sent such alerts, and no headline names them, until the time is over. They are still opened and"
    " listed; what is open then is sent.",
    icon="notifications_off",
    applies=lambda rows: rows.filter(resolved_at=None),
    unfit="resolved before",
    carry_out=_silence,
    form=SilenceForm,
)


END = Verb(
    name="end",
    permission="ratelimits.acknowledge_alert",
    label="End now",
    done="ended",
    explains="What the silence held back is sent, if it is still open.",
    icon="notifications_active",
    applies=lambda rows: rows.filter(until__gt=Now()),
    unfit="over before",
    carry_out=by_ids(end_silences),
)


@admin.register(AlertSilence)
class AlertSilenceAdmin(ReadOnlyMixin, QueueAdmin):
    list_display = ("of", "ends", "reason", "who", "since")
    list_select_related = ("limit",)
    actions = ("end_selected",)
    actions_detail = ("end",)
    empty_title = "Nothing is silenced."
    empty_hint = "An open alert's page offers to silence its like for a while."

    end_selected, end = on_selected(END), on_one(END)

    of = column("alerts of", str)
    ends = time_column("ends", "until")
    who = column("by", lambda silence: name_of(silence.created_by))
    since = time_column("since", "created_at")
