"""Forms that ask a person something before an action."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

from django import forms
from django.apps import apps
from django.contrib.admin import site
from django.contrib.admin.widgets import AutocompleteSelect
from django.db.models import Field, QuerySet
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from unfold.widgets import (
    UnfoldAdminDecimalFieldWidget,
    UnfoldAdminSelectWidget,
    UnfoldAdminTextareaWidget,
    UnfoldAdminTextInputWidget,
)

from queueops.core.errors import QueueOpsError

MAX_MINUTES_AHEAD = 366 * 24 * 60
MAX_PROJECTS_LISTED = 500  # in a drop-down; more are searched


class SuggestingWidget(UnfoldAdminTextInputWidget):
    """Takes any text, and suggests existing names."""

    def __init__(self, suggestions: Callable[[], Iterable[str]], attrs: dict[str, Any] | None = None) -> None:
        super().__init__({"autocomplete": "off", **(attrs or {})})
        self.suggestions = suggestions

    def render(self, name: str, value: Any, attrs: dict[str, Any] | None = None, renderer: Any = None) -> SafeString:
        known = f"known-{(attrs or {}).get('id', name)}"
        field = super().render(name, value, {**(attrs or {}), "list": known}, renderer)
        offered = format_html_join("", "<option value='{}'></option>", ((one,) for one in self.suggestions()))
        return format_html('{}<datalist id="{}">{}</datalist>', field, known, offered)


class UnrenderedTextarea(UnfoldAdminTextareaWidget):
    """Takes text and shows none: typed text is never sent back to the page, not even beside an error."""

    def get_context(self, name: str, value: Any, attrs: dict[str, Any] | None) -> dict[str, Any]:
        context: dict[str, Any] = super().get_context(name, None, attrs)
        return context


def set_choices(form: forms.BaseForm, name: str, choices: Iterable[tuple[str, str]]) -> None:
    cast("forms.ChoiceField", form.fields[name]).choices = list(choices)


def offer(form: forms.BaseForm, name: str, values: Iterable[str], *, none: str = "") -> None:
    """Let a person choose one of the values, or no value; the argument `none` is the label for no value."""
    set_choices(form, name, [*([("", none)] if none else []), *((value, value) for value in values)])


def set_queryset(form: forms.BaseForm, name: str, queryset: QuerySet[Any]) -> None:
    cast("forms.ModelChoiceField[Any]", form.fields[name]).queryset = queryset


def projects_listed() -> list[str] | None:
    """Return the projects that a drop-down offers; None: they are too many, so the page searches them."""
    projects = apps.get_model("tenancy", "Project").objects.values_list("pk", flat=True)[: MAX_PROJECTS_LISTED + 1]
    return list(projects) if len(projects) <= MAX_PROJECTS_LISTED else None


def are_projects_many() -> bool:
    projects = apps.get_model("tenancy", "Project").objects.order_by()
    return bool(projects[MAX_PROJECTS_LISTED : MAX_PROJECTS_LISTED + 1].exists())


def column_searched() -> Field[Any, Any]:
    """Return a column that refers to a project: the search wants one, and any will do."""
    return cast("Field[Any, Any]", apps.get_model("tenancy", "ProducerKey").project.field)


class ProjectField(forms.ModelChoiceField):  # type: ignore[type-arg]
    """A project from a drop-down; a form that calls `search_projects` searches them where they are too many."""

    widget = UnfoldAdminSelectWidget

    def __init__(self, **options: Any) -> None:
        super().__init__(apps.get_model("tenancy", "Project").objects.all(), **options)


class ProjectSearch(AutocompleteSelect):
    def __init__(self, field: ProjectField, attrs: dict[str, Any] | None = None) -> None:
        super().__init__(column_searched(), site, attrs)
        self.is_required, self.choices, self.shown_if_none = field.required, field.choices, field.empty_label or ""

    def build_attrs(self, base_attrs: dict[str, Any], extra_attrs: dict[str, Any] | None = None) -> dict[str, Any]:
        return {**super().build_attrs(base_attrs, extra_attrs), "data-placeholder": self.shown_if_none}


def search_projects(form: forms.BaseForm) -> None:
    """Let a person search the projects of the form's field where a drop-down cannot offer them all."""
    if are_projects_many():
        field = cast("ProjectField", form.fields["project"])
        field.widget = ProjectSearch(field)


class ConfirmForm(forms.Form):
    """A form without fields, to confirm an action on `rows`."""

    required_css_class = "required"

    def __init__(self, *args: Any, rows: Sequence[Any] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.rows = rows


class CheckedForm(forms.ModelForm):  # type: ignore[type-arg]
    """A form whose row a service checks once the fields' own checks have filled it."""

    def _post_clean(self) -> None:
        super()._post_clean()  # type: ignore[misc]  # the stubs do not know Django's hook
        if self.errors:
            return
        try:
            self.check_row()
        except QueueOpsError as error:
            add_faults(self, error)
            if not self.errors:  # otherwise the form would be saved
                self.add_error(None, error.message)

    def check_row(self) -> None:
        """
        Raises:
            QueueOpsError: The service finds something wrong with the instance: each fault is shown at its field.
        """
        raise NotImplementedError


def add_faults(form: forms.BaseForm, error: QueueOpsError) -> None:
    """Show each fault at its field, or with the field's name above a form that lacks the field."""
    for field, faults in error.fields.items():
        if field in form.fields:
            form.add_error(field, list(faults))
        else:
            form.add_error(None, [f"{field}: {fault}" for fault in faults])


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
