"""The list of projects, with their work."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.contrib import admin
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from jobs.models import PauseSwitch
from queueops.screens import formatting
from queueops.screens.attribute import TypedAttribute
from queueops.screens.verbs import on_one
from queueops.tenancy.admin.projects import ProjectAdmin
from queueops.tenancy.models import Project

from .at_once import AT_ONCE, caps_shown

admin.site.unregister(Project)
_switch = TypedAttribute[UUID | None]("switch")


@admin.register(Project)
class WorkingProjectAdmin(ProjectAdmin):
    list_display = ("id", "name", "weight", "max_waiting_jobs", "work", "keys", "read_by", "paused")
    change_form_outer_after_template = "admin/jobs/project/at_once.html"
    actions_detail = ("at_once",)

    at_once = on_one(AT_ONCE)

    def shown_of(self, request: HttpRequest, row: Project) -> dict[str, Any]:
        caps = {"at_once": caps_shown(row.pk, request)} if request.user.has_perm("ratelimits.view_limit") else {}
        return {"may_set_at_once": request.user.has_perm(AT_ONCE.permission), **caps}

    def get_list_display(self, request: HttpRequest) -> tuple[str, ...]:
        shown = super().get_list_display(request)
        return (*shown, "in_row") if request.user.has_perm("jobs.pause_work") else shown

    def get_queryset(self, request: HttpRequest) -> QuerySet[Project]:
        switches = PauseSwitch.objects.filter(scope=PauseSwitch.Scope.PROJECT, key=OuterRef("pk"))
        rows: QuerySet[Project] = super().get_queryset(request)
        return rows.annotate(**{_switch.name: Subquery(switches.values("pk")[:1])})

    @admin.display(description="work")
    def work(self, project: Project) -> SafeString:
        return format_html(
            '<a class="qo-link" href="{}?project={}">jobs</a> ·'
            ' <a class="qo-link" href="{}?project={}">dead letters</a> ·'
            ' <a class="qo-link" href="{}?project={}">as they see it</a>',
            reverse("admin:jobs_job_changelist"),
            project.pk,
            reverse("admin:jobs_deadletter_changelist"),
            project.pk,
            reverse("me"),
            project.pk,
        )

    @admin.display(description="paused")
    def paused(self, project: Project) -> SafeString | str:
        switch = _switch.of(project)
        return formatting.NOTHING if switch is None else formatting.link("jobs_pauseswitch", switch, "paused")

    @admin.display(description="")
    def in_row(self, project: Project) -> SafeString | str:
        if _switch.of(project) is not None:
            return ""
        asked = urlencode({"scope": PauseSwitch.Scope.PROJECT, "key": project.pk})
        address = f"{reverse('admin:jobs_pauseswitch_pause_work')}?{asked}"
        return format_html('<a class="qo-link" href="{}">Pause…</a>', address)
