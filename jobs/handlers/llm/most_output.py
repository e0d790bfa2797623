"""The most output tokens of a call that states no maximum, by model; sources in docs/reference/wire-facts.md. Pure."""

from __future__ import annotations

import re

# By the beginning of the name: what follows it is a date or a variant. Read on 2026-11-28.
MAX_OUTPUT = {
    "gpt-3.5-turbo": 4_096,
    "gpt-4-turbo": 4_096,
    "gpt-4o": 16_384,
    "gpt-4o-mini": 16_384,
    "gpt-4.1": 32_768,
    "gpt-4.1-mini": 32_768,
    "gpt-4.1-nano": 32_768,
    "gpt-5": 128_000,
    "gpt-5-mini": 128_000,
    "gpt-5-nano": 128_000,
    "o1": 100_000,
    "o3": 100_000,
    "o3-mini": 100_000,
    "o4-mini": 100_000,
    "gemini-2.5-flash": 65_536,
    "gemini-2.5-flash-lite": 65_536,
    "gemini-2.5-pro": 65_536,
}
_VARIANT = re.compile(r"(?:[-@:]|\Z)")


def most_output_of(model: str) -> int | None:
    """Return the maximum that the model's provider documents; None: unknown. A path before the name is left out."""
    name = model.rpartition("/")[2].lower()
    known = [one for one in MAX_OUTPUT if name.startswith(one) and _VARIANT.match(name, len(one))]
    return MAX_OUTPUT[max(known, key=len)] if known else None
