"""Finds the known name that an unknown one probably means."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

ALIKE = 0.65  # so that `prio` is near `priority`; with 0.6, the default, `reason` is near `spread_seconds`


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ` Is 'openai' meant?` for `opennai`, to be put after a sentence; empty if no known name is near."""
    by_case = {one.lower(): one for one in known}
    longer = [one for one in by_case if one.startswith(f"{name.lower()}_")]  # `delay` means `delay_seconds`
    close = get_close_matches(name.lower(), by_case, n=1, cutoff=ALIKE) or longer
    return f" Is {by_case[close[0]]!r} meant?" if close else ""
