"""Refuses numbers that JSON does not have: NaN, infinities and numbers too large for a double."""

from __future__ import annotations

import math
import re
from typing import Any

from .spec import InvalidJob

# How pydantic writes such numbers. A text in the payload may contain these words, too.
_WRITTEN = re.compile(rb"NaN|Infinity")
MAX_NAMED = 20  # fields in one error


def refuse_endless(payload: Any, text: bytes) -> None:
    """
    Args:
        text: The payload as JSON, with `NaN` and `Infinity` for such numbers.

    Raises:
        InvalidJob: With the path of each such number.
    """
    if not _WRITTEN.search(text):
        return
    fields = {path: ["JSON has no such number: write null, a text, or one below 1.8e308"] for path in _found(payload)}
    if fields:
        raise InvalidJob("The payload holds a number that JSON does not have (NaN or infinite).", fields=fields)


def _found(payload: Any) -> list[str]:
    found: list[str] = []
    waiting: list[tuple[str, Any]] = [("payload", payload)]
    while waiting and len(found) < MAX_NAMED:
        path, value = waiting.pop()
        if isinstance(value, float) and not math.isfinite(value):
            found.append(path)
        elif isinstance(value, dict):
            waiting += [(f"{path}.{name}", item) for name, item in reversed(value.items())]
        elif isinstance(value, list):
            waiting += [(f"{path}.{place}", value[place]) for place in range(len(value) - 1, -1, -1)]
    return found
