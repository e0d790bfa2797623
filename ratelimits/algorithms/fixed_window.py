"""Fixed window: quotas that a provider counts up to a reset, at a zone's midnight or every n seconds."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import ClassVar, Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from queueops.core.postgres.zones import known_zone, zone_names
from ratelimits.algorithms.admission import STATE_VERSION, Algorithm, State, require_sizes, stored
from ratelimits.algorithms.figures import NOUNS, WHOLE_DAY_SECONDS, Figures, Findings, cap_a_window, check_cap, figure
from ratelimits.algorithms.measures import MICRO, cost_units, microseconds, require_amount

MIN_DAY_SECONDS = 23 * 3600.0  # a zone's day when its clocks go forward
# The number of windows remembered for a clock that goes back; earlier windows grant nothing.
KEPT_WINDOWS = 8
LOST_SECONDS = 60.0  # between two looks at a limit whose zone this host does not know


@dataclass(frozen=True, slots=True)
class FixedWindow(Algorithm):
    """
    Between two resets the admitted cost is at most the capacity, by the clock's time at each grant.

    Exactly one of two figures is given: `window_seconds` (windows aligned to 1970-01-01T00:00Z) or `zone` (windows are
    the zone's days, of 23 or 25 hours where its clocks change). A call counts in every window within
    `guard_seconds` of its time: the provider's clock may differ, or the call may arrive after the reset.
    A denial then lasts until `guard_seconds` after the reset.

    A host that does not know the zone cannot tell the windows: it grants nothing, and leaves the calls to other hosts.

    Args:
        capacity: The most cost in each window, in the limit's unit.
        zone: IANA name, such as "America/Los_Angeles".
        ceiling: See `Algorithm`.

    Raises:
        ValueError: A figure makes no sense.
    """

    kind: ClassVar = "fixed_window"
    reads: ClassVar = frozenset({"capacity", "window_seconds", "reset_zone", "guard_seconds", "provider_quota"})
    optional: ClassVar = Algorithm.optional | {"window_seconds"}

    capacity: float
    window_seconds: float | None = None
    zone: str | None = None
    guard_seconds: float = 0
    ceiling: float | None = None

    def __post_init__(self) -> None:
        require_sizes(self)
        require_amount("guard_seconds", self.guard_seconds, above_zero=False)
        if (self.window_seconds is None) == (self.zone is None):
            raise ValueError("a fixed window has either window_seconds or a zone")
        if self.window_seconds is not None:
            require_amount("window_seconds", self.window_seconds)
            if self.guard_seconds * 2 >= self.window_seconds:
                raise ValueError("guard_seconds: less than half a window, or a call would count in three")
        if self.is_lost:
            with suppress(ZoneInfoNotFoundError, OSError):
                ZoneInfo(self.zone or "")  # raises ValueError if this is not even a name

    def open(self, state: State, now: float) -> FixedMeter:
        """Read a counter's state at `now`, seconds since 1970."""
        return FixedMeter(self, state, microseconds(now))

    @classmethod
    def of(cls, figures: Figures, capacity: float, rate: float, pressure: float) -> Self:
        window, zone = (None, figures.reset_zone) if figures.reset_zone else (figures.window_seconds, None)
        made = cls(capacity, window, zone, guard_seconds=figures.guard_seconds, ceiling=capacity)
        # A day's quota recovers only at its reset: a factor would take calls away and would not slow their pace.
        return made if made.recovers_by_day else replace(made, capacity=capacity * pressure)

    @property
    def rate_per_second(self) -> float:
        return self.capacity / (self.window_seconds or WHOLE_DAY_SECONDS)

    @property
    def is_lost(self) -> bool:
        """Whether this host does not know the zone."""
        return self.zone is not None and known_zone(self.zone) is None

    @property
    def late_seconds(self) -> float:
        return self.guard_seconds

    @property
    def recovers_by_day(self) -> bool:
        return self.zone is not None or (self.window_seconds or 0) >= WHOLE_DAY_SECONDS

    @classmethod
    def in_words(cls, figures: Figures) -> str:
        if not figures.reset_zone:
            return cap_a_window(figures)
        return f"{figure(figures.capacity)} {NOUNS[figures.unit]} a day, reset at midnight in {figures.reset_zone}"

    @classmethod
    def check(cls, figures: Figures, found: Findings) -> None:
        if figures.reset_zone:
            length: float = MIN_DAY_SECONDS
            if figures.reset_zone not in zone_names():
                found.refuse("reset_zone", "No such time zone; write it as America/Los_Angeles.")
        elif figures.window_seconds is None:
            found.refuse("reset_zone", "A fixed window needs a reset zone, for days, or the seconds of a window.")
            return
        else:
            length = figures.window_seconds
            if length < WHOLE_DAY_SECONDS:
                found.warnings.append(
                    "Around a reset up to twice the cap may pass. Take a sliding window unless the provider resets so,"
                    " too."
                )
        if figures.guard_seconds * 2 >= length:
            found.refuse("guard_seconds", f"Below half a window: {figure(length / 2)} s.")
        check_cap(figures, found)

    def reset_after(self, time: int) -> int:
        """Return the first reset after `time`, both in microseconds since 1970; of a lost zone, that of UTC."""
        if self.window_seconds is not None:
            window = microseconds(self.window_seconds)
            return (time // window + 1) * window
        zone = known_zone(self.zone or "UTC") or UTC
        local = datetime.fromtimestamp(time // MICRO, zone)
        # If the zone skips midnight, Python takes the offset before the skip: this gives the instant at which the day
        # begins.
        midnight = datetime(local.year, local.month, local.day, tzinfo=zone) + timedelta(days=1)
        return int(midnight.timestamp()) * MICRO


class FixedMeter:
    """
    State: `windows`, the last ones used, each as [reset, used]; `rule`, the length of a window or the zone;
    `forgotten`, the reset of the latest window that was dropped.

    A window is identified by its reset, so a clock that went back finds the earlier counts.
    """

    __slots__ = ("_capacity", "_forgotten", "_guard", "_line", "_line_at", "_window", "_windows", "moved", "now")

    def __init__(self, window: FixedWindow, state: State, now: int) -> None:
        self.now, self.moved = now, False
        self._window = window
        self._capacity = cost_units(window.capacity)
        self._guard = microseconds(window.guard_seconds)
        self._windows: dict[int, int] = {}
        self._forgotten = 0
        self._line: dict[int, int] | None = None
        if kept := stored(state, "fixed_window"):
            self._forgotten = kept["forgotten"]
            same_rule = kept["rule"] == self._rule()
            for reset, used in kept["windows"]:
                # After a change of rule an amount counts in the new window in which its old window ends: none counts
                # for too short a time.
                key = reset if same_rule else window.reset_after(reset - 1)
                self._windows[key] = self._windows.get(key, 0) + used

    def _rule(self) -> str | float | None:
        return self._window.window_seconds if self._window.zone is None else self._window.zone

    def _resets(self, time: int) -> tuple[int, ...]:
        """Return the resets of the windows in which a call at `time` counts."""
        if self._window.is_lost:  # a charge must count in a window that hosts with the zone know
            ahead = [reset for reset in self._windows if reset > time]
            return (min(ahead, default=self._window.reset_after(time)),)
        if not self._guard:
            return (self._window.reset_after(time),)
        earlier, later = self._window.reset_after(time - self._guard), self._window.reset_after(time + self._guard)
        return (earlier,) if earlier == later else (earlier, later)

    def _used(self, windows: dict[int, int], reset: int) -> int:
        return self._capacity if reset <= self._forgotten else windows.get(reset, 0)

    def room_for(self, units: int) -> bool:
        return not (self._window.is_lost or self._full(self._windows, self.now, units))

    def _full(self, windows: dict[int, int], time: int, units: int) -> list[int]:
        most = self._capacity - min(units, self._capacity)
        return [reset for reset in self._resets(time) if self._used(windows, reset) > most]

    def take(self, units: int) -> int:
        self._book(self._windows, self.now, units)
        return self.now

    def _book(self, windows: dict[int, int], time: int, units: int) -> None:
        for reset in self._resets(time) if units else ():
            windows[reset] = windows.get(reset, 0) + units

    def line_up(self, units: int) -> int:
        if self._window.is_lost:
            return self.now + microseconds(LOST_SECONDS)
        if self._line is None:
            self._line, self._line_at = dict(self._windows), self.now
        while full := self._full(self._line, self._line_at, units):
            self._line_at = full[-1] + self._guard
        self._book(self._line, self._line_at, units)
        return self._line_at

    def give_back(self, units: int, granted_at: int) -> None:
        for reset in self._resets(granted_at):
            if reset in self._windows:
                self._windows[reset] = max(0, self._windows[reset] - units)

    def available(self) -> int:
        if self._window.is_lost:
            return 0
        return self._capacity - max(self._used(self._windows, reset) for reset in self._resets(self.now))

    def state(self) -> State:
        windows = sorted(self._windows.items())
        dropped, kept = windows[:-KEPT_WINDOWS], windows[-KEPT_WINDOWS:]
        return {
            "v": STATE_VERSION,
            "kind": "fixed_window",
            "rule": self._rule(),
            "windows": [list(window) for window in kept],
            "forgotten": max([self._forgotten, *(reset for reset, _ in dropped)]),
        }
