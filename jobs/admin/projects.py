"""The list of projects, with their work."""

from __future__ import annotations

from urllib.parse import urlencode

from django.contrib import admin
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from jobs.models import PauseSwitch
from queueops.screens import showing
from queueops.tenancy.admin.projects import ProjectAdmin
from queueops.tenancy.models import Project

admin.site.unregister(Project)


@admin.register(Project)
class WorkingProjectAdmin(ProjectAdmin):
    list_display = ("id", "name", "weight", "max_waiting_jobs", "work", "keys", "read_by", "paused")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Project]:
        switches = PauseSwitch.objects.filter(scope=PauseSwitch.Scope.PROJECT, key=OuterRef("pk"))
        rows: QuerySet[Project] = super().get_queryset(request)
        return rows.annotate(switch=Subquery(switches.values("pk")[:1]))

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
        switch = project.switch  # type: ignore[attr-defined]
        if switch is None:
            address = (
                f"{reverse('admin:jobs_pauseswitch_pause_work')}?{urlencode({'scope': 'project', 'key': project.pk})}"
            )
            return format_html('<a class="qo-link" href="{}">pause…</a>', address)
        return showing.link("jobs_pauseswitch", switch, "paused")
