"""What every screen of the admin is made of."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from unfold.admin import ModelAdmin

from queueops.core.errors import QueueOpsError
from queueops.core.web.recent_writes import may_lag

from .verbs import VerbsMixin


class QueueAdmin(VerbsMixin, ModelAdmin):
    """A list over the whole width that counts no table, with the actions that a person may take."""

    change_list_template = "admin/kit/change_list.html"
    list_fullwidth = True
    list_per_page = 50
    show_full_result_count = False
    change_form_outer_after_template = "admin/kit/after.html"

    @may_lag
    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        response: HttpResponse = super().changelist_view(request, extra_context)
        return response

    def audit_targets(self, row: Any) -> list[str]:
        """What the audit trail calls a row; its page shows what people changed about it."""
        return [f"{self.opts.verbose_name} {row.pk}"]


class ServiceFormAdmin(QueueAdmin):
    """A form that a service saves, which may refuse what the form has found sound: somebody else was faster."""

    def shown_of(self, row: Any) -> dict[str, Any]:
        """What the page of a stored row shows besides the form."""
        return {}

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        row = self.get_object(request, object_id) if object_id else None
        shown = self.shown_of(row) if row is not None and self.has_view_permission(request, row) else {}
        try:
            response: HttpResponse = super().changeform_view(
                request, object_id, form_url, {**(extra_context or {}), **shown}
            )
        except QueueOpsError as error:
            messages.error(request, error.message)
            return HttpResponseRedirect(request.get_full_path())
        return response
