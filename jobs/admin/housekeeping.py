"""
django-q2's schedules, queue and results: superusers only.

A schedule names a function by its dotted path, and stored tasks are pickles. Therefore people choose from the functions
that may run here, and give no arguments. The screens show stored tasks without unpickling them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from django import forms
from django.apps import apps
from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.decorators import display
from unfold.widgets import UnfoldAdminSelectWidget

from jobs.cluster import ALLOWED_TASKS
from queueops.audit.audited import AuditedMixin
from queueops.screens import formatting
from queueops.screens.admin import QueueAdmin
from queueops.screens.columns import time_column
from queueops.screens.verbs import ReadOnlyMixin

# django-q2's own screens unpickle stored tasks and let people schedule any function, so the screens below replace them.
# Import the package's screens first: otherwise they would replace the screens below. An import statement is not
# allowed here: only jobs.cluster may import the package.
import_module("django_q.admin")
Schedule = apps.get_model("django_q", "Schedule")
QueuedTask = apps.get_model("django_q", "OrmQ")
Success = apps.get_model("django_q", "Success")
Failure = apps.get_model("django_q", "Failure")

# The task of a bulk operation needs the operation's id: a schedule, which gives no arguments, cannot start it.
SCHEDULABLE = sorted(ALLOWED_TASKS - {"jobs.cluster.run_operation"})


class SuperuserMixin:
    """Only superusers open these screens: no permission that can be granted is enough."""

    def has_module_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.is_active and request.user.is_superuser)

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_module_permission(request)

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_module_permission(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_module_permission(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.has_module_permission(request)


class ScheduleForm(forms.ModelForm):  # type: ignore[type-arg]
    func = forms.ChoiceField(
        label="function",
        choices=[(name, name) for name in SCHEDULABLE],
        widget=UnfoldAdminSelectWidget,
        help_text="Only these may run; each is short and may run twice.",
    )


class ScheduleAdmin(SuperuserMixin, AuditedMixin, QueueAdmin):
    form = ScheduleForm
    list_display = ("name", "func", "schedule_type", "minutes", "next_at")
    fields = ("name", "func", "schedule_type", "minutes", "repeats", "next_run")

    next_at = time_column("next run", "next_run")

    def audited(self, obj: Any) -> dict[str, Any]:
        return {name: getattr(obj, name) for name in ("name", "func", "schedule_type", "minutes", "repeats")}


class QueuedTaskAdmin(ReadOnlyMixin, SuperuserMixin, QueueAdmin):
    list_display = ("id", "key", "handed_out_after")
    fields = ("id", "key", "handed_out_after")
    readonly_fields = fields

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        found: QuerySet[Any] = super().get_queryset(request).defer("payload")
        return found

    handed_out_after = time_column("handed out after", "lock")


class FinishedTaskAdmin(ReadOnlyMixin, SuperuserMixin, QueueAdmin):
    list_display = ("name", "func", "outcome", "began", "took")
    fields = ("name", "func", "outcome", "began", "took", "attempt_count")
    readonly_fields = ("outcome", "began", "took")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        found: QuerySet[Any] = super().get_queryset(request).defer("args", "kwargs", "result")
        return found

    @display(description="outcome", label={"done": "success", "failed": "danger"})  # type: ignore[untyped-decorator]
    def outcome(self, task: Any) -> str:
        return "done" if task.success else "failed"

    began = time_column("began", "started")

    @admin.display(description="took")
    def took(self, task: Any) -> str:
        return formatting.duration(task.stopped - task.started)


for model, screen in (
    (Schedule, ScheduleAdmin),
    (QueuedTask, QueuedTaskAdmin),
    (Success, FinishedTaskAdmin),
    (Failure, FinishedTaskAdmin),
):
    admin.site.unregister(model)
    admin.site.register(model, screen)
