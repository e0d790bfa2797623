"""The figures that people set for a limit, as an algorithm reads, checks and words them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

NOUNS: Mapping[str, str] = {
    "requests": "calls",
    "tokens": "tokens",
    "input_tokens": "input tokens",
    "output_tokens": "output tokens",
    "enqueued_tokens": "enqueued tokens",
    "in_flight": "calls in flight",
}
MAX_DIGITS = 12
WHOLE_DAY_SECONDS = 24 * 3600
MINUTE = 60.0


class Figures(Protocol):
    """The figures of a stored limit, of a hypothetical limit or of a rule."""

    @property
    def capacity(self) -> float: ...

    @property
    def refill_per_second(self) -> float | None: ...

    @property
    def window_seconds(self) -> float | None: ...

    @property
    def slack_seconds(self) -> float | None: ...

    @property
    def reset_zone(self) -> str: ...

    @property
    def guard_seconds(self) -> float: ...

    @property
    def lease_seconds(self) -> float: ...

    @property
    def headroom_percent(self) -> float: ...

    @property
    def provider_quota(self) -> float | None: ...

    @property
    def unit(self) -> str: ...


@dataclass(slots=True)
class Findings:
    """Faults by field, and warnings for the limit as a whole."""

    faults: dict[str, list[str]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def refuse(self, name: str, fault: str) -> None:
        self.faults.setdefault(name, []).append(fault)


def window_of(figures: Figures) -> float:
    """The window in seconds; a minute where none is stated."""
    return figures.window_seconds or MINUTE


def floored(value: float) -> float:
    """Round down to six digits: a figure that people copy from a message must not exceed the value."""
    places = 10.0 ** (5 - math.floor(math.log10(value)))
    return math.floor(value * places + 1e-6) / places  # 4.85 times 100,000 is a little below 485,000


def check_cap(figures: Figures, found: Findings) -> None:
    """Refuse a window's cap above what its provider allows."""
    if figures.provider_quota is not None and figures.capacity > figures.provider_quota:
        found.refuse("capacity", f"The provider allows {figure(figures.provider_quota)} in a window.")


_PERIODS = {60.0: "a minute", 3600.0: "an hour", 86_400.0: "a day"}


def cap_a_window(figures: Figures) -> str:
    """`300 calls a minute`."""
    seconds = window_of(figures)
    return f"{figure(figures.capacity)} {NOUNS[figures.unit]} {_PERIODS.get(seconds, f'in {figure(seconds)} s')}"


def figure(value: float) -> str:
    """A figure as people write it: 300, 4.85, 30,000."""
    rounded = float(f"{value:.6g}") if abs(value) < 1e6 else value  # noqa: PLR2004 (six digits are enough below)
    return f"{rounded:,.0f}" if rounded == int(rounded) else f"{rounded:,.{MAX_DIGITS}f}".rstrip("0").rstrip(".")
