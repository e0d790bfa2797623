"""A form that explains its figures, and is saved only once a person confirms having read the explanation."""

from __future__ import annotations

from typing import Any

from django import forms
from unfold.widgets import UnfoldBooleanSwitchWidget

from .forms import optional_reason

SEEN_AT = "seen_at"


class AskingForm(forms.ModelForm):  # type: ignore[type-arg]
    """
    A form of a row that has `updated_at`. Subclasses fill `warnings` and `asks_first` in `clean`.

    Attributes:
        stored: The row as it is; None for a new one.
        warnings: What the figures mean, shown above the form.
        asks_first: Whether a valid form is not saved yet, but shown again to be confirmed.
    """

    reason = optional_reason("Optional; kept in the audit trail with the figures before and after.")
    confirmed = forms.BooleanField(required=False, widget=UnfoldBooleanSwitchWidget, label="I have read what this does")
    seen_at = forms.CharField(required=False, widget=forms.HiddenInput)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.warnings: list[str] = []
        self.asks_first = False
        model = type(self.instance)
        self.stored: Any = model.objects.filter(pk=self.instance.pk).first() if self.instance.pk else None
        if SEEN_AT in self.fields and self.stored:  # people who may only view get a form without fields
            self.fields[SEEN_AT].initial = self.stored.updated_at.isoformat()

    @property
    def seen(self) -> str:
        return str(self.data.get(SEEN_AT) or "")

    @property
    def was_overtaken(self) -> bool:
        """Whether somebody else has saved the row since it was shown."""
        return bool(self.stored and self.seen and self.seen != self.stored.updated_at.isoformat())

    @property
    def is_unread(self) -> bool:
        """Whether a person has to read something before the form is saved."""
        return bool(self.warnings) and self.has_changed()

    @property
    def needs_confirmation(self) -> bool:
        return self.is_bound and self.is_unread and not self.errors

    def is_valid(self) -> bool:
        return super().is_valid() and not self.asks_first
