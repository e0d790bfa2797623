"""
People's assistants: one token opens all projects that its owner sees. Each tool therefore takes the project as an
argument.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from queueops.tenancy.callers.authentication import Caller, ProjectRequired, UnknownProject
from queueops.tenancy.models import Project
from queueops.tenancy.moves import refuse_moved

from .errors import UnknownTool
from .tool import Tool

PROJECT = "project"
DESCRIBED = {"type": "string", "description": "Where to look, as the tool `projects` lists them."}


def with_project(tool: Tool) -> dict[str, Any]:
    """Return the schema of a tool's arguments for a person's assistant: with the project."""
    schema = tool.given.model_json_schema()
    if tool.for_people:
        return schema
    return {**schema, "properties": {PROJECT: DESCRIBED, **schema.get("properties", {})}}


def in_project(caller: Caller, tool: Tool, arguments: dict[str, Any]) -> tuple[Caller, dict[str, Any]]:
    """
    Return the caller, in the project that a person's assistant names, and the tool's other arguments.

    A project that somebody may not see is answered like one that does not exist.

    Raises:
        ProjectRequired, UnknownProject, ProjectMoved
        UnknownTool: The tool is for people alone, and the caller has a key.
    """
    if caller.operator is None:
        if tool.for_people:
            raise UnknownTool(f"There is no tool {tool.name!r} for keys.")
        return caller, arguments
    if tool.for_people:
        return caller, arguments
    own = dict(arguments)
    named = own.pop(PROJECT, None) or caller.project_id
    if not named:
        raise ProjectRequired("Name the project, as the tool `projects` lists them.")
    if not isinstance(named, str) or "\0" in named or (caller.confined and named != caller.project_id):
        raise UnknownProject
    move = Project.objects.filter(pk=named).values_list("move", "moved_to").first()
    if move is None:
        raise UnknownProject
    refuse_moved(named, *move, reads=not tool.changes)
    return replace(caller, project_id=named), own
