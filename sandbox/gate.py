"""What every provider does to a call before and after its own work: outages, quotas, faults, delay."""

import math
import random
import time
from collections import deque
from dataclasses import dataclass
from email.utils import formatdate
from fnmatch import fnmatchcase
from typing import Any

from sandbox.knobs import Knobs

TOO_MANY_REQUESTS = 429
UNAVAILABLE = 503


@dataclass(frozen=True, slots=True)
class Fate:
    """
    What becomes of one call.

    `status` None lets the provider do its work. With `answers_503_after` the work is done and the
    answer hides it. `breaks_connection` gives no answer at all.
    """

    status: int | None = None
    cause: str | None = None
    accepted: bool = True
    retry_after: str | None = None
    breaks_connection: bool = False
    answers_503_after: bool = False
    latency_seconds: float = 0.0


class SlidingWindow:
    """Counts the calls of the last seconds; times are of one monotonic clock."""

    def __init__(self) -> None:
        self._times: deque[float] = deque()

    def clear(self) -> None:
        self._times.clear()

    def wait_seconds(self, *, calls: int, window_seconds: float, now: float) -> float:
        """Return 0 when another call has room, else the seconds until one has."""
        while self._times and self._times[0] <= now - window_seconds:
            self._times.popleft()
        if len(self._times) < calls:
            return 0.0
        return self._times[len(self._times) - calls] + window_seconds - now

    def add(self, now: float) -> None:
        self._times.append(now)


class Gate:
    """Holds the knobs and what they need to remember between calls."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.knobs = Knobs()
        self._window = SlidingWindow()
        self._calls_drawn = 0
        self._outage_ends = 0.0

    def turn(self, changes: Any) -> None:
        """
        Change some knobs. A `seed` restarts the draws, an `outage` begins now.

        Raises:
            InvalidKnobs: Nothing was changed.
        """
        knobs = self.knobs.changed(changes)
        if "seed" in changes:
            self._calls_drawn = 0
        if "outage" in changes:
            self._outage_ends = time.monotonic() + knobs.outage.seconds if knobs.outage else 0.0
        if knobs.quota is None:
            self._window.clear()
        self.knobs = knobs

    def outage_seconds_left(self) -> float:
        return max(0.0, self._outage_ends - time.monotonic())

    def decide(self, *, is_write: bool, row: str | None) -> Fate:
        """Decide a call at its arrival. The n-th call after the seed is drawn the same every time."""
        knobs = self.knobs
        if self.outage_seconds_left() > 0 and knobs.outage:
            breaks = knobs.outage.mode == "close"
            return Fate(None if breaks else UNAVAILABLE, "outage", accepted=False, breaks_connection=breaks)
        dice = random.Random(f"{knobs.seed}:{self._calls_drawn}")
        self._calls_drawn += 1
        latency = knobs.latency.draw(dice) / 1000 if knobs.latency else 0.0
        error_draw, apply_draw = dice.random(), dice.random()

        wait = self._quota_wait()
        if wait > 0:
            return self._turned_away("quota", wait, latency)
        for rule in knobs.row_errors:
            if row is not None and fnmatchcase(row, rule.pattern):
                return Fate(rule.status, "row_errors", latency_seconds=latency)
        for status, rate in sorted(knobs.error_rates.items()):
            if error_draw < rate:
                if status == TOO_MANY_REQUESTS:
                    return self._turned_away("error_rates", knobs.retry_after_seconds, latency)
                return Fate(status, "error_rates", latency_seconds=latency)
            error_draw -= rate
        hides = is_write and apply_draw < knobs.apply_then_503_rate
        return Fate(cause="apply_then_503_rate" if hides else None, answers_503_after=hides, latency_seconds=latency)

    def _quota_wait(self) -> float:
        quota, now = self.knobs.quota, time.monotonic()
        if quota is None:
            return 0.0
        wait = self._window.wait_seconds(calls=quota.calls, window_seconds=quota.window_seconds, now=now)
        if wait <= 0 or quota.rejected_calls_count:
            self._window.add(now)
        return wait

    def _turned_away(self, cause: str, wait: float, latency: float) -> Fate:
        return Fate(
            TOO_MANY_REQUESTS,
            cause,
            accepted=False,
            retry_after=self._retry_after(wait),
            latency_seconds=latency,
        )

    def _retry_after(self, wait: float) -> str | None:
        seconds = math.ceil(wait)
        return {
            "none": None,
            "seconds": str(seconds),
            "date": formatdate(math.ceil(time.time()) + seconds, usegmt=True),
            "garbage": "soon",
            "negative": "-5",
        }[self.knobs.retry_after]
