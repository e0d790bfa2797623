"""The base classes of every screen of the admin."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Any

from django.conf import settings
from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.contrib.admin.widgets import AutocompleteSelect
from django.forms import SplitDateTimeField, model_to_dict
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.http.response import HttpResponseBase
from django.urls import path
from django.utils.safestring import SafeString
from unfold.admin import TabularInline

from queueops.core.errors import QueueOpsError
from queueops.core.web.read_your_writes import may_lag

from . import formatting
from .formatting import NOTHING
from .forms import are_projects_many, column_searched
from .verbs import VerbsMixin

SHOWN_AS = "shown_as"
CHANGED_MEANWHILE = "Somebody else has changed this since you opened it. Nothing was saved; here it is as it is now."


class QueueAdmin(VerbsMixin):
    """The base of screens: a list of full width that counts no table, and the actions that a person may take."""

    change_list_template: Any = "admin/kit/change_list.html"
    list_fullwidth = True
    list_per_page = 50
    show_full_result_count = False
    change_form_outer_after_template = "admin/kit/after.html"
    fixed_fields: tuple[str, ...] = ()  # they are entered with a new row, and never change
    is_deletable = True

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str] | tuple[str, ...]:
        fields = tuple(super().get_readonly_fields(request, obj))
        return (*fields, *self.fixed_fields) if obj else fields

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        of_project = db_field.related_model is column_searched().related_model
        if of_project and "widget" not in kwargs and are_projects_many():
            kwargs["widget"] = AutocompleteSelect(db_field, self.admin_site)
        return super().formfield_for_foreignkey(db_field, request, **kwargs)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.is_deletable and bool(super().has_delete_permission(request, obj))

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest, **kwargs: Any) -> Any:
        found = super().formfield_for_dbfield(db_field, request, **kwargs)
        if isinstance(found, SplitDateTimeField):
            found.help_text = f"{found.help_text} In {settings.TIME_ZONE}.".lstrip()
        return found

    def get_changelist_instance(self, request: HttpRequest) -> Any:
        page = super().get_changelist_instance(request)
        page.result_list = list(page.result_list)
        self.prepare_rows(page.result_list)
        if not (page.query or page.has_active_filters):
            page.full_result_count = page.result_count  # without a filter, the heading need not link to a longer list
        return page

    @may_lag
    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        context = {**(extra_context or {}), **self.shown_above(request)}
        response: HttpResponse = super().changelist_view(request, context)
        return response

    def prepare_rows(self, rows: list[Any]) -> None:
        """Fetch the columns' data, for all rows of the page at once."""

    def page_at(self, address: str, view: Callable[..., HttpResponseBase], name: str) -> Any:
        """Return a page below the list's address. Its view gets the screen, the request and what the address has."""
        name = f"{self.opts.app_label}_{self.opts.model_name}_{name}"
        return path(address, self.admin_site.admin_view(partial(view, self)), name=name)

    def shown_above(self, request: HttpRequest) -> dict[str, Any]:
        """Return what the page of the list shows besides its rows."""
        return {}

    def audit_targets(self, row: Any) -> list[str]:
        """Return the names of a row in the audit trail; its page shows what people changed about it."""
        return [f"{self.opts.verbose_name} {row.pk}"]

    @admin.display(description="project")
    def of_project(self, row: Any) -> str:
        return str(row.project_id or NOTHING)

    @admin.display(description="age")
    def age(self, row: Any) -> SafeString:
        return formatting.age(row.created_at)


class RefusableAdmin(QueueAdmin):
    """A form whose saving may be refused after the form was accepted: without this, the refusal would answer 500."""

    def changeform_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            response: HttpResponse = super().changeform_view(request, *args, **kwargs)
        except QueueOpsError as error:
            messages.error(request, error.message)
            return HttpResponseRedirect(request.get_full_path())
        return response


class QueueInline(TabularInline):
    extra = 0


class LabelledInline(QueueInline):
    """Labels each input with its column's name, because the column's heading labels no input."""

    def formfield_for_dbfield(self, db_field: Any, request: HttpRequest | None, **kwargs: Any) -> Any:
        found = super().formfield_for_dbfield(db_field, request, **kwargs)
        found.widget.attrs["aria-label"] = db_field.verbose_name
        return found


class PageAdmin(QueueAdmin):
    """The base of screens where a row's page shows more than the row's fields."""

    def shown_of(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        """Return what the page of a stored row shows besides its fields."""
        return {}

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        row = self.get_object(request, unquote(object_id))
        shown = self.shown_of(request, row) if row is not None and self.has_view_permission(request, row) else {}
        response: HttpResponse = super().change_view(request, object_id, form_url, {**(extra_context or {}), **shown})
        return response


class ServiceFormAdmin(RefusableAdmin, PageAdmin):
    """
    A form that a service saves. The service may refuse what the form accepted, if somebody else was faster. A form that
    was opened before somebody else's change is not saved: its old figures would undo that change.

    People who may only look get no field `reason`: it is a field of the form, and no row has it.
    """

    change_form_before_template: Any = "admin/kit/shown_as.html"

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        row = self.get_object(request, unquote(object_id))
        shown = "" if row is None else self._shown_as(request, row)
        if request.POST.get(SHOWN_AS, shown) != shown:
            messages.error(request, CHANGED_MEANWHILE)
            return HttpResponseRedirect(request.get_full_path())
        return super().change_view(request, object_id, form_url, {**(extra_context or {}), SHOWN_AS: shown})

    def _shown_as(self, request: HttpRequest, row: Any) -> str:
        """Return a digest of what the form shows of a stored row."""
        figures = model_to_dict(row, fields=list(self.get_form(request, row, change=True).base_fields))
        return hashlib.sha256(repr(figures).encode()).hexdigest()

    def may_save(self, request: HttpRequest, row: Any = None) -> bool:
        return bool(self.has_change_permission(request, row) if row else self.has_add_permission(request))

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Sequence[Any]:
        parts: Sequence[Any] = super().get_fieldsets(request, obj)
        asks_why = "reason" in getattr(self.form, "declared_fields", ())
        return without(parts, {"reason"}) if asks_why and not self.may_save(request, obj) else parts


def without(parts: Iterable[Any], names: Collection[str]) -> list[Any]:
    """Return the parts of a form without the fields of these names, and without parts that have no other field."""
    left = []
    for title, options in parts:
        rows = (row if isinstance(row, tuple) else (row,) for row in options["fields"])
        if fields := [kept for row in rows if (kept := tuple(name for name in row if name not in names))]:
            left.append((title, {**options, "fields": fields}))
    return left
