"""Bulk operations: how far they are, and how to stop one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.http import HttpRequest, HttpResponse
from django.utils.safestring import SafeString
from unfold.admin import ModelAdmin
from unfold.decorators import display

from jobs.models import BulkOperation
from jobs.services import bulk

from . import showing
from .forms import OptionalReasonForm
from .masking import masked
from .paging import BoundedListMixin, as_uuid
from .verbs import Outcome, ReadOnlyMixin, Verb, VerbsMixin, on_one, on_selected

COLOURS = {"running": "info", "done": "success", "cancelled": "warning", "failed": "danger"}


def _stop(ids: Sequence[UUID], *, actor: str, reason: str) -> Outcome:
    running = set(BulkOperation.objects.filter(pk__in=ids, status="running").values_list("pk", flat=True))
    ended = [bulk.cancel_bulk(one, actor=actor, reason=reason) for one in ids if one in running]
    stopped = sum(operation.status == BulkOperation.Status.CANCELLED for operation in ended)
    return Outcome(stopped, len(ids) - stopped)


STOP = Verb(
    name="stop",
    permission="jobs.change_bulkoperation",
    label="Stop",
    done="stopped",
    explains="It ends after the rows in hand. What it has done stays done; the rest is left alone.",
    icon="stop_circle",
    applies=lambda rows: rows.filter(status="running"),
    carry_out=_stop,
    form=OptionalReasonForm,
    overrides=True,
)


@admin.register(BulkOperation)
class BulkOperationAdmin(ReadOnlyMixin, VerbsMixin, BoundedListMixin, ModelAdmin):  # type: ignore[misc]  # unfold has no types
    list_display = ("action_shown", "status_shown", "progress", "done", "skipped", "actor", "began")
    list_filter = ("status", "action")
    list_fullwidth = True
    list_defer = ("parameters",)
    actions = ("stop_selected",)
    actions_detail = ("stop",)

    stop_selected, stop = on_selected(STOP), on_one(STOP)

    @admin.display(description="action")
    def action_shown(self, operation: BulkOperation) -> str:
        return words_of(operation)

    @display(description="status", label=COLOURS)  # type: ignore[untyped-decorator]
    def status_shown(self, operation: BulkOperation) -> str:
        return operation.status

    @admin.display(description="progress")
    def progress(self, operation: BulkOperation) -> SafeString:
        return progress_of(operation)

    @admin.display(description="began")
    def began(self, operation: BulkOperation) -> SafeString | str:
        return showing.ago(operation.created_at)

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        operation = self.get_object(request, object_id) if as_uuid(object_id) else None
        shown: dict[str, Any] = {}
        if operation is not None and self.has_view_permission(request, operation):
            shown = {
                "title": words_of(operation),
                "subtitle": operation.status,
                "operation": operation,
                "is_running": operation.status == BulkOperation.Status.RUNNING,
                "progress_bar": progress_of(operation),
                "began": showing.ago(operation.created_at),
                "ended": showing.ago(operation.finished_at),
                "parameters": json.dumps(masked(operation.parameters), indent=2, ensure_ascii=False)[:20_000],
            }
        response: HttpResponse = super().change_view(request, object_id, form_url, {**(extra_context or {}), **shown})
        return response

    def get_actions_detail(self, request: HttpRequest, object_id: Any) -> list[Any]:
        identifier = as_uuid(str(object_id))
        running = BulkOperation.objects.filter(status="running")
        runs = identifier is not None and running.filter(pk=identifier).exists()
        return super().get_actions_detail(request, object_id) if runs else []


def words_of(operation: BulkOperation) -> str:
    return operation.action.replace("_", " ").capitalize()


def progress_of(operation: BulkOperation) -> SafeString:
    looked_at = operation.done + operation.skipped
    percent = 100.0 if not operation.total else min(100.0, 100 * looked_at / operation.total)
    return showing.bar(percent, f"{looked_at:,} of {operation.total:,}")
