"""Sliding window: caps per minute that hold in every minute, wherever it begins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from ratelimits.algorithms.admission import Algorithm, State, require_sizes
from ratelimits.algorithms.figures import Figures, Findings, check_cap, figure, window_of
from ratelimits.algorithms.measures import cost_units, microseconds, require_amount
from ratelimits.algorithms.spans import SpanMeter

BUCKETS = 60


@dataclass(frozen=True, slots=True)
class SlidingWindow(Algorithm):
    """
    In any interval of `window_seconds` the admitted cost is at most the capacity.

    Costs are counted in 60 sub-buckets (of one second for a minute). A sub-bucket counts until its end is a window and
    the slack in the past. Two calls that cannot share the capacity therefore leave more than window + slack apart. The
    promise holds at the provider, too, if calls take up to `slack_seconds` longer or shorter to arrive than others.
    In steady use the limit admits 60/61 of its capacity a window (98.4 %): a slack below one bucket costs nothing more.

    Args:
        capacity: The most cost in each window, in the limit's unit.
        slack_seconds: Default half a bucket, 0.5 s for a minute.
        ceiling: See `Algorithm`.
    """

    kind: ClassVar = "sliding_window"
    reads: ClassVar = frozenset({"capacity", "window_seconds", "slack_seconds", "provider_quota"})

    capacity: float
    window_seconds: float = 60
    slack_seconds: float | None = None
    ceiling: float | None = None

    def __post_init__(self) -> None:
        require_sizes(self)
        require_amount("window_seconds", self.window_seconds)
        if self.slack_seconds is not None:
            require_amount("slack_seconds", self.slack_seconds, above_zero=False)

    def open(self, state: State, now: float) -> SpanMeter:
        """Read a counter's state at `now`, seconds since 1970."""
        window = microseconds(self.window_seconds)
        width = -(-window // BUCKETS)
        slack = width // 2 if self.slack_seconds is None else microseconds(self.slack_seconds)
        return SpanMeter(
            "sliding_window",
            state,
            microseconds(now),
            capacity=cost_units(self.capacity),
            width=width,
            hold=window + slack,
        )

    @classmethod
    def of(cls, figures: Figures, capacity: float, rate: float, pressure: float) -> Self:
        return cls(capacity * pressure, window_of(figures), figures.slack_seconds, ceiling=capacity)

    @property
    def rate_per_second(self) -> float:
        return self.capacity / self.window_seconds * BUCKETS / (BUCKETS + 1)

    @property
    def late_seconds(self) -> float:
        return self.window_seconds / BUCKETS / 2 if self.slack_seconds is None else self.slack_seconds

    @classmethod
    def check(cls, figures: Figures, found: Findings) -> None:
        window = window_of(figures)
        if figures.slack_seconds is not None and figures.slack_seconds >= window:
            found.refuse("slack_seconds", f"Below the window of {figure(window)} s.")
        check_cap(figures, found)
