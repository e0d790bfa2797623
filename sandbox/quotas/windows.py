"""How a provider counts a caller's use: four kinds of window over one clock."""

import math
from collections import deque
from dataclasses import dataclass
from datetime import datetime, time, timedelta
from itertools import count
from typing import Literal, Protocol
from zoneinfo import ZoneInfo

WindowMode = Literal["aligned", "sliding", "anchored"]


class Window(Protocol):
    """Times are seconds of one clock that never steps back; costs are whole numbers."""

    def used(self, now: float) -> int:
        """Return what counts against the quota at this moment."""

    def add(self, cost: int, now: float) -> None: ...

    def amend(self, *, at: float, cost: int, actual: int, now: float) -> None:
        """Correct a cost that was added at the moment `at`; a cost that no longer counts is left alone."""

    def wait_seconds(self, cost: int, *, capacity: int, now: float) -> float:
        """Return 0 when the cost fits, else the seconds until it does; infinite above the capacity."""

    def elapsed(self, now: float) -> float:
        """Return which part of the window has passed, 0 to 1; a sliding window is always full."""


class SlidingCount:
    """Counts the costs of the last `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._added: deque[tuple[float, int]] = deque()
        self._used = 0

    def used(self, now: float) -> int:
        while self._added and self._added[0][0] <= now - self._seconds:
            self._used -= self._added.popleft()[1]
        return self._used

    def add(self, cost: int, now: float) -> None:
        self._added.append((now, cost))
        self._used += cost

    def amend(self, *, at: float, cost: int, actual: int, now: float) -> None:
        self.used(now)
        for number in range(len(self._added) - 1, -1, -1):
            if self._added[number] == (at, cost):
                self._added[number] = (at, actual)
                self._used += actual - cost
                return

    def wait_seconds(self, cost: int, *, capacity: int, now: float) -> float:
        excess = self.used(now) + cost - capacity
        if excess <= 0:
            return 0.0
        for at, earlier in self._added:
            excess -= earlier
            if excess <= 0:
                return at + self._seconds - now
        return math.inf

    def elapsed(self, now: float) -> float:
        return 1.0


class _Resetting:
    """A window whose use resets at once at its end; a subclass says when the window of `now` ends."""

    def __init__(self) -> None:
        self._used = 0
        self._started = self._ends = -math.inf

    def used(self, now: float) -> int:
        if now >= self._ends:
            self._used = 0
        return self._used

    def add(self, cost: int, now: float) -> None:
        self.used(now)
        if now >= self._ends:
            self._started, self._ends = now, self._end_after(now)
        self._used += cost

    def amend(self, *, at: float, cost: int, actual: int, now: float) -> None:
        if self.used(now) and at >= self._started:
            self._used += actual - cost

    def wait_seconds(self, cost: int, *, capacity: int, now: float) -> float:
        if self.used(now) + cost <= capacity:
            return 0.0
        return self._ends - now if cost <= capacity else math.inf

    def elapsed(self, now: float) -> float:
        raise NotImplementedError

    def _end_after(self, now: float) -> float:
        raise NotImplementedError


class AlignedWindow(_Resetting):
    """Starts with every multiple of `seconds` of the clock, such as each full minute."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def _end_after(self, now: float) -> float:
        return aligned_start(now, self._seconds) + self._seconds

    def elapsed(self, now: float) -> float:
        return (now - aligned_start(now, self._seconds)) / self._seconds


class AnchoredWindow(_Resetting):
    """Starts with the first call after the last window ended."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def _end_after(self, now: float) -> float:
        return now + self._seconds

    def elapsed(self, now: float) -> float:
        return 1 - (self._ends - now) / self._seconds if now < self._ends else 0.0


class DailyWindow(_Resetting):
    """Starts at each midnight of a time zone."""

    def __init__(self, zone: str) -> None:
        super().__init__()
        self._zone = ZoneInfo(zone)

    def _end_after(self, now: float) -> float:
        return midnight_after(now, self._zone)

    def elapsed(self, now: float) -> float:
        start = midnight_before(now, self._zone)
        return (now - start) / (midnight_after(now, self._zone) - start)


@dataclass(frozen=True, slots=True)
class WindowRule:
    """Which window a quota has; with a `zone` it is that zone's day."""

    mode: WindowMode
    seconds: float
    zone: str | None = None

    def make(self) -> Window:
        if self.zone is not None:
            return DailyWindow(self.zone)
        kinds: dict[WindowMode, type[SlidingCount | AlignedWindow | AnchoredWindow]] = {
            "sliding": SlidingCount,
            "aligned": AlignedWindow,
            "anchored": AnchoredWindow,
        }
        return kinds[self.mode](self.seconds)

    def span(self, now: float) -> tuple[float, float]:
        """Return start and end of the clock-aligned period in whose report `now` counts."""
        if self.zone is not None:
            zone = ZoneInfo(self.zone)
            return midnight_before(now, zone), midnight_after(now, zone)
        start = aligned_start(now, self.seconds)
        return start, start + self.seconds


def aligned_start(now: float, seconds: float) -> float:
    return math.floor(now / seconds) * seconds


def midnight_before(now: float, zone: ZoneInfo) -> float:
    return datetime.combine(datetime.fromtimestamp(now, zone).date(), time.min, zone).timestamp()


def midnight_after(now: float, zone: ZoneInfo) -> float:
    """Return the next midnight; where a clock change skips it, the first moment of that day."""
    today = datetime.fromtimestamp(now, zone).date()
    return next(
        moment
        for days in count(1)
        if (moment := datetime.combine(today + timedelta(days=days), time.min, zone).timestamp()) > now
    )
