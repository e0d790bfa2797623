"""The assistant's tools, and the decorator that makes a function a tool."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from inspect import getdoc
from typing import Any

from pydantic import ValidationError

from queueops.core.errors import fields_of
from queueops.rest.errors import InvalidInput
from queueops.rest.inputs import Input
from queueops.tenancy.callers.authentication import Caller
from queueops.tenancy.callers.permissions import Need, ensure

from .errors import UnknownTool
from .showing import ToolAnswer

CarryOut = Callable[[Caller, Any], ToolAnswer]


@dataclass(frozen=True, slots=True)
class Tool:
    """
    Attributes:
        given: The model of its arguments.
        needs: The scope that a key needs and the permission that an operator needs, as for an address of the API.
        changes: Whether it changes anything; all other tools only read.
        for_people: Whether the tool is about all projects that a person sees. Keys are not offered such a tool.
    """

    name: str
    given: type[Input]
    needs: Need
    carry_out: CarryOut
    changes: bool = False
    for_people: bool = False

    @property
    def explains(self) -> str:
        return getdoc(self.carry_out) or ""

    def __call__(self, caller: Caller, arguments: dict[str, Any]) -> ToolAnswer:
        """
        Raises:
            InvalidInput: Arguments are bad or unknown; it names each of them.
            MissingScope, MissingPermission
        """
        ensure(caller, self.needs)
        return self.carry_out(caller, checked(self.given, arguments))


TOOLS: dict[str, Tool] = {}


class NoArguments(Input):
    """It takes nothing."""


def tool(
    needs: Need, given: type[Input] = NoArguments, *, changes: bool = False, for_people: bool = False
) -> Callable[[CarryOut], CarryOut]:
    """Make a function a tool with the function's name. Assistants read its docstring."""

    def register(carry_out: CarryOut) -> CarryOut:
        TOOLS[carry_out.__name__] = Tool(carry_out.__name__, given, needs, carry_out, changes, for_people)
        return carry_out

    return register


def find_tool(name: str) -> Tool:
    """
    Raises:
        UnknownTool
    """
    if name not in TOOLS:
        raise UnknownTool(f"There is no tool {name[:100]!r}.", tools=sorted(TOOLS))
    return TOOLS[name]


def checked(model: type[Input], given: dict[str, Any]) -> Input:
    """
    Raises:
        InvalidInput
    """
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise InvalidInput("The arguments are not what this tool takes.", fields=fields_of(error)) from None
