"""Refuses what JSON does not have: NaN, infinities, numbers too large for a double, and the key None."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from .spec import InvalidJob

# How pydantic writes such numbers. A text in the payload may contain these words, too.
_WRITTEN = re.compile(rb"NaN|Infinity")
_NONE_KEY = b'"None":'
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
    words = "JSON has no such number: write null, a text, or one below 1.8e308"
    fields = {path: [words] for path in _found(payload, _is_endless)}
    if fields:
        raise InvalidJob("The payload holds a number that JSON does not have (NaN or infinite).", fields=fields)


def refuse_none_keys(payload: Any, text: bytes) -> None:
    """
    Refuse a dictionary with the key None, of a caller in Python: it would come back as the text `None`.

    Args:
        text: The payload as JSON.

    Raises:
        InvalidJob: With the path of each such dictionary.
    """
    if _NONE_KEY not in text:
        return
    paths = _found(payload, lambda value: isinstance(value, dict) and None in value)
    if paths:
        fields = {path: ["JSON has no key None: write a text"] for path in paths}
        raise InvalidJob("The payload holds a dictionary with the key None.", fields=fields)


def _is_endless(value: Any) -> bool:
    return isinstance(value, float) and not math.isfinite(value)


def _found(payload: Any, is_bad: Callable[[Any], bool]) -> list[str]:
    found: list[str] = []
    waiting: list[tuple[str, Any]] = [("payload", payload)]
    while waiting and len(found) < MAX_NAMED:
        path, value = waiting.pop()
        if is_bad(value):
            found.append(path)
        elif isinstance(value, dict):
            waiting += [(f"{path}.{name}", item) for name, item in reversed(value.items())]
        elif isinstance(value, list | tuple):
            waiting += [(f"{path}.{place}", value[place]) for place in range(len(value) - 1, -1, -1)]
    return found
