"""Names that nobody has heard of, and those that were meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, known: Iterable[str]) -> str:
    """` Is 'openai' meant?` for `opennai`; empty: nothing is near. Made to follow a sentence."""
    by_case = {one.lower(): one for one in known}
    close = get_close_matches(name.lower(), by_case, n=1)
    return f" Is {by_case[close[0]]!r} meant?" if close else ""
