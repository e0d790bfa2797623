"""The forms of allowances and of single users' quotas."""

from __future__ import annotations

from typing import Any
from zoneinfo import available_timezones

from django import forms
from unfold.widgets import UnfoldAdminSelectWidget, UnfoldAdminTextareaWidget

from queueops.screens.confirm_form import AskingForm
from queueops.screens.forms import offer, optional_reason, set_queryset
from queueops.tenancy.models import Project
from ratelimits.models import Allowance, AllowanceOverride
from ratelimits.usage.allowances import FIGURES, changes_that_bite


class AllowanceForm(AskingForm):
    time_zone = forms.ChoiceField(
        widget=UnfoldAdminSelectWidget,
        help_text="Where the month begins at midnight. An event counts in the month that it was there.",
    )

    class Meta:
        model = Allowance
        fields = ("project", *FIGURES)
        help_texts = {
            "unit": "Requests: each event counts one. Tokens: as many as it reports.",
            "policy": "Strict: a reservation beyond the quota is refused. What is reported without one always counts.",
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "time_zone" in self.fields:
            offer(self, "time_zone", zones())
            self.fields["time_zone"].initial = self.instance.time_zone
        if "project" in self.fields:
            set_queryset(self, "project", Project.objects.filter(allowance=None))

    def figures(self) -> dict[str, Any]:
        """The form's figures, as the service takes them."""
        return {name: self.cleaned_data[name] for name in FIGURES}

    def clean(self) -> dict[str, Any]:
        given = super().clean() or self.cleaned_data
        if self.errors:
            return given
        if self.was_overtaken:
            self.add_error(
                None, "Somebody else has changed this allowance meanwhile. Reload the page to see their figures."
            )
            return given
        if self.stored:
            self.warnings = changes_that_bite(self.stored, self.figures())
        self.asks_first = self.is_unread and not given.get("confirmed")
        return given


def zones() -> list[str]:
    """UTC, then the places by name; no abbreviations, which mean different things to different people."""
    return ["UTC", *sorted(zone for zone in available_timezones() if "/" in zone and not zone.startswith("Etc/"))]


class UserQuotaForm(forms.ModelForm):  # type: ignore[type-arg]
    reason = optional_reason()

    class Meta:
        model = AllowanceOverride
        fields = ("project", "user_id", "quota", "note")
        widgets = {"note": UnfoldAdminTextareaWidget(attrs={"rows": 2})}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "project" in self.fields:
            set_queryset(self, "project", Project.objects.exclude(allowance=None))
            self.fields["project"].help_text = "One that has an allowance."
        if "user_id" in self.fields:
            self.fields["user_id"].help_text = "The user's UUID, as tokens and server keys name it."
