"""The caller's project as a whole."""

from __future__ import annotations

from typing import ClassVar

from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api import answers, examples, inputs
from jobs.models import PauseSwitch
from jobs.services.explain.snapshots import project_counts
from jobs.services.operate.pauses import pause_scope, resume_scope
from jobs.services.operate.scheduled_jobs import count_scheduled
from jobs.states import TERMINAL
from queueops.rest.schema import operation
from queueops.tenancy.models import Project

from .base import PAUSE, READ, ApiView

Scope = PauseSwitch.Scope


class ProjectDetail(ApiView):
    needs: ClassVar = {"GET": READ}

    @operation(
        "Look at the project: its jobs by state",
        operation_id="project_get",
        answer=answers.ProjectInfo,
        example=examples.PROJECT,
    )
    def get(self, request: Request) -> Response:
        project = Project.objects.get(pk=self.caller.project_id)
        switches = PauseSwitch.objects.filter(scope__in=[Scope.GLOBAL, Scope.PROJECT], key__in=["", project.pk])
        counts, later = project_counts(project.pk), count_scheduled(project.pk)
        return Response(
            {
                "id": project.pk,
                "name": project.name,
                "paused": switches.exists(),
                "counts": counts,
                "scheduled": later.jobs,
                "scheduled_until": later.last,
                "unfinished": sum(count for state, count in counts.items() if state not in TERMINAL),
                "max_waiting_jobs": project.max_waiting_jobs,
                "encrypted": project.encrypted,
            }
        )


class PauseProject(ApiView):
    needs: ClassVar = {"POST": PAUSE}

    @operation(
        "Pause the project",
        operation_id="project_pause",
        body=inputs.WithReason,
        body_example={"reason": "wrong credentials"},
        answer=answers.Paused,
        example={"paused": True, "changed_jobs": 0},
        description="No job of the project starts until it is resumed; running ones go on. Safe to repeat.",
    )
    def post(self, request: Request, body: inputs.WithReason) -> Response:
        held = pause_scope(Scope.PROJECT, self.caller.project_id, actor=self.caller.actor, reason=body.reason)
        return Response({"paused": True, "changed_jobs": held})


class ResumeProject(ApiView):
    needs: ClassVar = {"POST": PAUSE}

    @operation(
        "Resume the project",
        operation_id="project_resume",
        body=inputs.WithReason,
        body_example={},
        answer=answers.Paused,
        example={"paused": False, "changed_jobs": 0},
        description="Safe to repeat.",
    )
    def post(self, request: Request, body: inputs.WithReason) -> Response:
        released = resume_scope(Scope.PROJECT, self.caller.project_id, actor=self.caller.actor, reason=body.reason)
        return Response({"paused": False, "changed_jobs": released})
