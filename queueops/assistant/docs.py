"""The page of the assistant's tools, written from the tools themselves."""

from __future__ import annotations

from typing import Any

from queueops.core.generated_docs import generated_page, table

from .catalogue import TOOLS
from .tool import Tool

_HEAD = """\
# Tools of the assistant

After this page you can look up what each tool of the assistant takes and needs.

Written by `manage.py write_docs` from `queueops/assistant/tools/`; change it there.
[Connect an assistant](../how-to/connect-an-assistant.md) says how to reach them.

Every tool sees and changes the project of its key alone, or the one that a person's assistant names in `project`, which
all but `projects` take then. An argument that a tool does not have, an id that the project does not have, and a
scope or permission that is lacking are refused, with the codes of [the API](api.md).
"""


@generated_page("reference/assistant-tools.md")
def tools_page() -> str:
    parts = [_HEAD]
    for one in TOOLS.values():
        scope = "For people." if one.for_people else f"Needs the scope `{one.needs.scope.value}`."
        needs = f"{scope} Of people: `{one.needs.permission}`."
        parts += [f"## {one.name}", "", one.explains, "", needs, ""]
        parts += [*_arguments(one), ""] if one.given.model_fields else []
    return "\n".join(parts)


def _arguments(one: Tool) -> list[str]:
    schema = one.given.model_json_schema()
    required = set(schema.get("required", ()))
    rows = [
        [f"`{name}`", _kind(field), "yes" if name in required else "", field.get("description", "")]
        for name, field in schema["properties"].items()
    ]
    return table(["argument", "takes", "required", "what it is"], rows)


def _kind(field: dict[str, Any]) -> str:
    if choices := field.get("enum"):
        return ", ".join(f"`{choice}`" for choice in choices)
    if "anyOf" in field:
        return " or ".join(_kind(one) for one in field["anyOf"] if one.get("type") != "null")
    return str(field.get("format") or field.get("type") or "any")
