"""
A Helm chart's templates rendered without helm: the part of Go's text/template that deploy/helm uses, and no more of it.

Knows `{{ .Values.a.b }}`, `{{ $name }}`, `{{ printf "%q" $name }}`, `range $name, $value :=` over a map, `if`, `end`,
and the trimming `{{-`. Whatever else a template says is an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

ACTION = re.compile(r"(\s*)\{\{(-?) (.+?) \}\}")
RANGE = re.compile(r"range \$(\w+), \$(\w+) := (\S+)")


def render(template: str, values: Mapping[str, Any]) -> str:
    """
    Raises:
        ValueError: It says what is not known here.
    """
    parts: list[str] = []
    end = 0
    for found in ACTION.finditer(template):
        space, trims, action = found.groups()
        parts += [template[end : found.start()] + ("" if trims else space), action]
        end = found.end()
    text, rest = _block([*parts, template[end:]], {"Values": values})
    if rest:
        raise ValueError("an end without a beginning")
    return text


def _block(parts: list[str], known: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Render up to the end of the block; what is left behind it."""
    text = ""
    while parts:
        text += parts[0]
        if len(parts) == 1:
            return text, []
        action, parts = parts[1], parts[2:]
        if action == "end":
            return text, parts
        if found := RANGE.fullmatch(action):
            rows = sorted(_value(found[3], known).items()) or [("", "")]
            blocks = [_block(parts, {**known, f"${found[1]}": name, f"${found[2]}": value}) for name, value in rows]
            text += "".join(block for block, _ in blocks)
            parts = blocks[0][1]
        elif action.startswith("if "):
            block, parts = _block(parts, known)
            text += block if _value(action.removeprefix("if "), known) else ""
        elif action.startswith('printf "%q" '):
            text += json.dumps(_value(action.removeprefix('printf "%q" '), known))
        else:
            text += str(_value(action, known))
    return text, []


def _value(path: str, known: Mapping[str, Any]) -> Any:
    if path in known:
        return known[path]
    if not re.fullmatch(r"\.Values(\.\w+)+", path):
        raise ValueError(f"{path!r} is not known here")
    found: Any = known["Values"]
    for name in path.split(".")[2:]:
        found = found[name]
    return found
