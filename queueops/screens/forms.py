"""Forms that ask a person something before an action."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from django import forms
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.widgets import UnfoldAdminDecimalFieldWidget, UnfoldAdminTextareaWidget, UnfoldAdminTextInputWidget

MAX_MINUTES_AHEAD = 366 * 24 * 60


class SuggestingWidget(UnfoldAdminTextInputWidget):
    """Takes any text, and offers names that there are."""

    def __init__(self, suggestions: Callable[[], Iterable[str]], attrs: dict[str, Any] | None = None) -> None:
        super().__init__({"autocomplete": "off", **(attrs or {})})
        self.suggestions = suggestions

    def render(self, name: str, value: Any, attrs: dict[str, Any] | None = None, renderer: Any = None) -> SafeString:
        known = f"known-{(attrs or {}).get('id', name)}"
        field = super().render(name, value, {**(attrs or {}), "list": known}, renderer)
        offered = format_html_join("", "<option value='{}'></option>", ((one,) for one in self.suggestions()))
        return format_html('{}<datalist id="{}">{}</datalist>', field, known, offered)


class ConfirmForm(forms.Form):
    """Nothing but yes. `rows` are what the action is about."""

    required_css_class = "required"

    def __init__(self, *args: Any, rows: Sequence[Any] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.rows = rows


class ReasonForm(ConfirmForm):
    reason = forms.CharField(
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 2}),
        max_length=2000,
        help_text="Kept in the audit trail and shown to whoever looks later.",
    )


def optional_reason(help_text: str = "Optional; kept in the audit trail.") -> forms.CharField:
    return forms.CharField(
        widget=UnfoldAdminTextareaWidget(attrs={"rows": 2}), max_length=2000, required=False, help_text=help_text
    )


class OptionalReasonForm(ReasonForm):
    reason = optional_reason()


def minutes_field(label: str, help_text: str, initial: float = 0) -> forms.FloatField:
    return forms.FloatField(
        label=label,
        min_value=0,
        max_value=MAX_MINUTES_AHEAD,
        initial=initial,
        required=False,
        help_text=help_text,
        widget=UnfoldAdminDecimalFieldWidget(attrs={"step": "any", "min": 0}),
    )
