"""The tool that lists projects, for people's assistants."""

from __future__ import annotations

from typing import Any

from queueops.assistant.showing import ToolAnswer
from queueops.assistant.tool import tool
from queueops.core.values.numbers import numbered
from queueops.tenancy.callers.authentication import Caller
from queueops.tenancy.callers.permissions import Need
from queueops.tenancy.models import Project, Scope

READ = Need(Scope.READ, "tenancy.view_project")
MAX_PROJECTS_TOLD = 200


@tool(READ, for_people=True)
def projects(caller: Caller, given: Any) -> ToolAnswer:
    """The projects that the person you work for sees, by id. Every other tool takes one of them as `project`."""
    rows = Project.objects.order_by("pk")
    if caller.confined:
        rows = rows.filter(pk=caller.project_id)
    found = list(rows.values("id", "name")[: MAX_PROJECTS_TOLD + 1])
    more = " There are more." if len(found) > MAX_PROJECTS_TOLD else ""
    return ToolAnswer(f"{numbered(len(found[:MAX_PROJECTS_TOLD]), 'project')}.{more}", found[:MAX_PROJECTS_TOLD])
