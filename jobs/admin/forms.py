"""Forms that ask an operator before an action."""

from __future__ import annotations

import json
from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

from django import forms
from unfold.widgets import (
    UnfoldAdminDecimalFieldWidget,
    UnfoldAdminIntegerFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
)

from jobs.models import PauseSwitch
from jobs.services.operate.bulk_outcome import CANARY_PERCENT, MAX_CANARIES, Canary
from jobs.services.operate.bulk_run import MAX_ROWS_PER_MINUTE
from jobs.services.operate.names_heard import NAMED_BY_SCOPE
from jobs.services.operate.pauses import OPERATORS
from jobs.states import Priority
from queueops.core.values.masking import masked, unmasked
from queueops.screens.forms import ConfirmForm, OptionalReasonForm, ReasonForm, SuggestingWidget, minutes_field
from ratelimits.limits.known_names import suggested

MAX_EDITABLE = 500_000  # characters of a payload in a text field


class DelayForm(OptionalReasonForm):
    delay = minutes_field("Minutes from now", "0 lets it run as soon as limits allow.", initial=10)
    field_order: tuple[str, ...] = ("delay", "reason")

    def clean_delay(self) -> timedelta:
        return timedelta(minutes=self.cleaned_data["delay"] or 0)


class ResetForm(ReasonForm):
    delay = minutes_field("Minutes until it may run again", "0: at once. No attempt is used up.")
    field_order = ("delay", "reason")
    clean_delay = DelayForm.clean_delay


def priority_field(*, optional: bool = False) -> forms.ChoiceField:
    unchanged = [("", "as before")] if optional else []
    return forms.ChoiceField(
        choices=[*unchanged, *Priority.choices],
        required=not optional,
        widget=UnfoldAdminSelectWidget,
    )


class PriorityForm(OptionalReasonForm):
    priority = priority_field()
    field_order: tuple[str, ...] = ("priority", "reason")

    def clean_priority(self) -> Priority:
        return Priority(self.cleaned_data["priority"])


class RequeueForm(ConfirmForm):
    priority = priority_field(optional=True)
    spread_seconds = minutes_field(
        "Spread over minutes",
        "0: all at once. Otherwise they start evenly over this time, so that a replay does not breach a quota.",
    )
    note = forms.CharField(
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 2}),
        max_length=2000,
        required=False,
        help_text="Optional; kept with the dead letters and in the audit trail.",
    )

    def clean_priority(self) -> Priority | None:
        chosen = self.cleaned_data["priority"]
        return Priority(chosen) if chosen else None

    def clean_spread_seconds(self) -> float:
        return float(self.cleaned_data["spread_seconds"] or 0) * 60


class PayloadForm(ConfirmForm):
    """Changes one row's payload. Secrets are shown masked; a mask that is left unchanged keeps its secret."""

    payload = forms.CharField(
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 18, "class": "qo-code", "spellcheck": "false"}),
        help_text="JSON, checked against what the kind of job takes. A masked secret that you leave stays as it was.",
    )
    field_order: tuple[str, ...] = ("payload",)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.rows:
            text = json.dumps(masked(self.rows[0].payload), indent=2, ensure_ascii=False)
            self.fields["payload"].initial = text
            if len(text) > MAX_EDITABLE:
                self.fields["payload"].disabled = True
                self.fields["payload"].initial = ""
                self.fields["payload"].help_text = "Too large to edit here; do it through the API."

    def clean_payload(self) -> dict[str, Any]:
        try:
            edited = json.loads(self.cleaned_data["payload"])
        except ValueError as error:
            raise forms.ValidationError(f"Not JSON: {error}") from None
        except RecursionError:
            raise forms.ValidationError("It is nested too deep.") from None
        if not isinstance(edited, dict):
            raise forms.ValidationError("A payload is a JSON object.")
        whole: dict[str, Any] = unmasked(edited, self.rows[0].payload)
        return whole


class EditedRequeueForm(PayloadForm, RequeueForm):
    """Requeues one dead letter with another payload."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        del self.fields["spread_seconds"]


class AgainForm(PayloadForm, ReasonForm):
    """Does the work of one ended job once more with another payload."""

    priority = priority_field(optional=True)
    # Without this field, a double click, which sends the page twice, would do the work twice.
    once = forms.CharField(widget=forms.HiddenInput, initial=lambda: str(uuid4()), max_length=100, required=False)
    field_order = ("payload", "priority", "reason")
    clean_priority = RequeueForm.clean_priority


class PaceForm(ConfirmForm):
    """The pace of actions on all matching rows."""

    rows_per_minute = forms.FloatField(
        label="At most rows a minute",
        min_value=1,
        max_value=MAX_ROWS_PER_MINUTE,
        required=False,
        help_text=f"Empty: {MAX_ROWS_PER_MINUTE:,}, which leaves the database room for executors.",
        widget=UnfoldAdminDecimalFieldWidget(attrs={"step": "any", "min": 1}),
    )


class CanaryForm(ConfirmForm):
    """For actions after which jobs run: a few may go first, and the rest follow if these do well."""

    canary = forms.IntegerField(
        label="So many first, as a canary",
        min_value=1,
        max_value=MAX_CANARIES,
        required=False,
        help_text="The rest follows once all of these have ended; it does not where too many failed with one code."
        " Empty: all at once.",
        widget=UnfoldAdminIntegerFieldWidget,
    )
    canary_percent = forms.IntegerField(
        label="Percent of the canary that may not fail with one code",
        min_value=1,
        max_value=100,
        required=False,
        initial=CANARY_PERCENT,
        widget=UnfoldAdminIntegerFieldWidget,
    )

    def clean(self) -> dict[str, Any]:
        """Return the fields as the services take them: one `canary` from the rows and the percent."""
        given: dict[str, Any] = super().clean() or self.cleaned_data
        percent = given.pop("canary_percent", None)
        rows = given.get("canary")
        given["canary"] = Canary(rows, percent or CANARY_PERCENT) if rows else None
        return given


class ResumeBatchForm(OptionalReasonForm, CanaryForm):
    field_order = ("canary", "canary_percent", "reason")


class BatchPriorityForm(PriorityForm, CanaryForm):
    field_order = ("priority", "canary", "canary_percent", "reason")


class PacedReasonForm(ReasonForm, PaceForm):
    pass


class PacedOptionalReasonForm(OptionalReasonForm, CanaryForm, PaceForm):
    """For actions after which jobs run at once: a reason may be left out."""


class PacedDelayForm(DelayForm, CanaryForm, PaceForm):
    field_order = ("delay", "canary", "canary_percent", "reason", "rows_per_minute")


class PacedPriorityForm(PriorityForm, CanaryForm, PaceForm):
    field_order = ("priority", "canary", "canary_percent", "reason", "rows_per_minute")


class BulkRequeueForm(RequeueForm, CanaryForm, PaceForm):
    spread_seconds = minutes_field(
        "Spread over minutes",
        "0: as fast as it goes. Otherwise they are requeued evenly over this time, and what is not requeued yet can"
        " still be stopped. Where the service has limits, what half of the slowest lets through is proposed.",
    )
    stop_at_failed_percent = forms.IntegerField(
        label="Stop when more than so many percent fail again",
        min_value=0,
        max_value=99,
        required=False,
        initial=50,
        help_text="Of the requeued jobs that have ended, once 20 have. Empty: never.",
        widget=UnfoldAdminIntegerFieldWidget,
    )
    most = forms.IntegerField(
        label="Only the oldest so many",
        min_value=1,
        required=False,
        help_text="To try whether the cause is gone before the rest follows. Empty: all of them.",
        widget=UnfoldAdminIntegerFieldWidget,
    )
    field_order = (
        "canary",
        "canary_percent",
        "most",
        "spread_seconds",
        "stop_at_failed_percent",
        "priority",
        "note",
        "rows_per_minute",
    )


class PauseForm(ReasonForm):
    scope = forms.ChoiceField(
        choices=[choice for choice in PauseSwitch.Scope.choices if choice[0] in OPERATORS],
        widget=UnfoldAdminSelectWidget,
        help_text="Running jobs go on; nothing new of this scope starts.",
    )
    key = forms.CharField(
        required=False,
        max_length=100,
        widget=SuggestingWidget(partial(suggested, *NAMED_BY_SCOPE.values())),
        help_text="The project's id, the service, the kind or the batch's id. Empty for global.",
    )
    field_order = ("scope", "key", "reason")

    def clean_key(self) -> str:
        return str(self.cleaned_data["key"]).strip()
