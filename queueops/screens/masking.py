"""What those are shown of payloads, results and messages who may not see secrets; on screens, of bounded size."""

from __future__ import annotations

import json
from typing import Any

from queueops.core.masking import MASK, SECRET_KEY, masked_text

__all__ = ["MASK", "masked", "masked_or_hidden", "masked_text", "pretty", "unmasked"]

MOST_SHOWN = 20_000  # characters of one JSON document on a page


def masked(value: Any) -> Any:
    """The JSON value with every secret replaced by MASK; numbers stay, so that `max_tokens` can be read."""
    if isinstance(value, dict):
        return {key: _hidden(item) if SECRET_KEY.search(str(key)) else masked(item) for key, item in value.items()}
    if isinstance(value, list):
        return [masked(item) for item in value]
    return masked_text(value) if isinstance(value, str) else value


def unmasked(edited: Any, original: Any) -> Any:
    """
    An edited document with its masks filled in again from the original, place by place.

    A mask that stands where the original has nothing is left: the handler's schema or the provider refuses it.
    """
    if isinstance(edited, dict) and isinstance(original, dict):
        return {key: unmasked(item, original.get(key)) for key, item in edited.items()}
    if isinstance(edited, list) and isinstance(original, list):
        tail = [None] * max(0, len(edited) - len(original))
        return [unmasked(item, old) for item, old in zip(edited, [*original, *tail], strict=False)]
    unchanged = isinstance(edited, str) and MASK in edited and original is not None
    return original if unchanged and edited == masked_or_hidden(edited, original) else edited


def masked_or_hidden(edited: str, original: Any) -> str:
    """What the screen showed in the place of `original`: all of it hidden, or a part of its text."""
    return MASK if edited == MASK or not isinstance(original, str) else masked_text(original)


def pretty(value: Any, *, most: int = MOST_SHOWN) -> tuple[str, int]:
    """The masked document as indented text, cut to `most` characters, and how many characters were cut."""
    text = json.dumps(masked(value), indent=2, ensure_ascii=False, default=str)
    return text[:most], max(0, len(text) - most)


def _hidden(value: Any) -> Any:
    return value if value is None or isinstance(value, (bool, int, float)) or value == "" else MASK
