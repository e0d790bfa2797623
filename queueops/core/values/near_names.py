"""Finds the names that were meant by unknown ones."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

ALIKE = 0.65  # `prio` is near `priority`; by the default, 0.6, `reason` is near `spread_seconds`


def nearest(name: str, known: Iterable[str]) -> str:
    """` Is 'openai' meant?` for `opennai`; empty: nothing is near. Made to follow a sentence."""
    by_case = {one.lower(): one for one in known}
    longer = [one for one in by_case if one.startswith(f"{name.lower()}_")]  # `delay` of `delay_seconds`
    close = get_close_matches(name.lower(), by_case, n=1, cutoff=ALIKE) or longer
    return f" Is {by_case[close[0]]!r} meant?" if close else ""
