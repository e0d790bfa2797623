"""Decides what happens to a call before and after the provider's own work: outages, quotas, faults, delay."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from email.utils import formatdate
from fnmatch import fnmatchcase
from typing import Any

from sandbox import clock
from sandbox.knobs.settings import Knobs
from sandbox.quotas.book import ExhaustedQuota, QuotaBook, QuotaCost
from sandbox.quotas.windows import SlidingCount

TOO_MANY_REQUESTS = 429
UNAVAILABLE = 503

_FAULTLESS = Knobs()


@dataclass(frozen=True, slots=True)
class Fate:
    """
    The fate of one call.

    If `status` is None, the provider does its work. With `answers_503_after` the work is done, but the
    answer is a 503. With `breaks_connection` there is no answer at all. `violations` are the provider's
    quotas without room; the other quotas are charged at `charged_at`. `dice` is the call's own source
    of random numbers, for what the provider draws later.
    """

    status: int | None = None
    cause: str | None = None
    accepted: bool = True
    retry_after: str | None = None
    breaks_connection: bool = False
    answers_503_after: bool = False
    latency_seconds: float = 0.0
    violations: tuple[ExhaustedQuota, ...] = ()
    charged_at: float = 0.0
    dice: random.Random = field(default_factory=random.Random)


@dataclass(frozen=True, slots=True)
class _Draws:
    latency_seconds: float
    dice: random.Random


class Gate:
    """Holds the knobs, and the state that they need between calls."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.knobs = Knobs()
        self.quotas = QuotaBook()
        self._window: SlidingCount | None = None
        self._calls_drawn = 0
        self._outage_ends = 0.0

    def turn(self, changes: Any) -> None:
        """
        Change some knobs. Setting a `seed`, even the same one, restarts the random draws; an `outage` begins now.

        Raises:
            InvalidKnobs: Nothing was changed.
        """
        knobs = self.knobs.changed(changes)
        if "seed" in changes:
            self._calls_drawn = 0
        if "outage" in changes:
            self._outage_ends = clock.now() + knobs.outage.seconds if knobs.outage else 0.0
        if (
            knobs.quota is None
            or self.knobs.quota is None
            or knobs.quota.window_seconds != self.knobs.quota.window_seconds
        ):
            self._window = SlidingCount(knobs.quota.window_seconds) if knobs.quota else None
        self.knobs = knobs

    def outage_seconds_left(self) -> float:
        return max(0.0, self._outage_ends - clock.now())

    def outage(self, provider: str) -> Fate | None:
        """Return the fate of every call to a provider that is out of service."""
        outage = self.knobs.outage
        if outage is None or not self.outage_seconds_left() or not self._is_faulty(provider):
            return None
        breaks = outage.mode == "close"
        return Fate(None if breaks else UNAVAILABLE, "outage", accepted=False, breaks_connection=breaks)

    def decide(
        self,
        provider: str,
        *,
        is_write: bool,
        row: str | None,
        charges: Sequence[QuotaCost] = (),
        rejected_calls_count: bool = False,
    ) -> Fate:
        """Decide a call at its arrival. The n-th call after a seed always has the same draws."""
        faults = self.knobs if self._is_faulty(provider) else _FAULTLESS
        dice = random.Random(f"{self.knobs.seed}:{self._calls_drawn}")
        self._calls_drawn += 1
        latency = faults.latency.draw(dice) / 1000 if faults.latency else 0.0
        error_draw, apply_draw = dice.random(), dice.random()
        draws = _Draws(latency, dice)

        wait = self._quota_wait() if faults.quota else 0.0
        if wait > 0:
            return self._turned_away("quota", wait, draws)
        now = clock.now()
        violations = self.quotas.charge(charges, now, rejected_calls_count=rejected_calls_count)
        if violations:
            wait = max(min(violation.wait_seconds, violation.charge.quota.rule.seconds) for violation in violations)
            return self._turned_away("provider_quota", wait, draws, violations)
        for rule in faults.row_errors:
            if row is not None and fnmatchcase(row, rule.pattern):
                return Fate(rule.status, "row_errors", latency_seconds=latency, dice=dice)
        for status, rate in sorted(faults.error_rates.items()):
            if error_draw < rate:
                if status == TOO_MANY_REQUESTS:
                    return self._turned_away("error_rates", faults.retry_after_seconds, draws)
                return Fate(status, "error_rates", latency_seconds=latency, dice=dice)
            error_draw -= rate
        hides = is_write and apply_draw < faults.apply_then_503_rate
        cause = "apply_then_503_rate" if hides else None
        return Fate(cause=cause, answers_503_after=hides, latency_seconds=latency, charged_at=now, dice=dice)

    def _is_faulty(self, provider: str) -> bool:
        return self.knobs.faulty_providers is None or provider in self.knobs.faulty_providers

    def rate_headers(self) -> dict[str, str]:
        """Describe the present quota in one of the forms that drafts of the RateLimit headers have defined."""
        quota, style, now = self.knobs.quota, self.knobs.rate_headers, clock.now()
        if quota is None or self._window is None or style == "none":
            return {}
        left = max(0, quota.calls - self._window.used(now))
        reset = math.ceil(self._window.wait_seconds(1, capacity=quota.calls, now=now))
        limit, policy = str(quota.calls), f"{quota.calls};w={quota.window_seconds:g}"
        if style == "policy":
            full = f'"calls";q={limit};w={quota.window_seconds:g}'
            return {"RateLimit-Policy": full, "RateLimit": f'"calls";r={left};t={reset}'}
        if style == "draft7":
            return {"RateLimit-Policy": policy, "RateLimit": f"limit={limit}, remaining={left}, reset={reset}"}
        name = "RateLimit" if style == "draft6" else "X-RateLimit"
        size = f"{limit}, {policy}" if style == "draft6" else limit
        return {f"{name}-Limit": size, f"{name}-Remaining": str(left), f"{name}-Reset": str(reset)}

    def _quota_wait(self) -> float:
        quota, now = self.knobs.quota, clock.now()
        if quota is None or self._window is None:
            return 0.0
        wait = self._window.wait_seconds(1, capacity=quota.calls, now=now)
        if wait <= 0 or quota.rejected_calls_count:
            self._window.add(1, now)
        return wait

    def _turned_away(
        self, cause: str, wait: float, draws: "_Draws", violations: tuple[ExhaustedQuota, ...] = ()
    ) -> Fate:
        return Fate(
            TOO_MANY_REQUESTS,
            cause,
            accepted=False,
            retry_after=self._retry_after(wait),
            latency_seconds=draws.latency_seconds,
            violations=violations,
            dice=draws.dice,
        )

    def _retry_after(self, wait: float) -> str | None:
        seconds = math.ceil(wait)
        return {
            "none": None,
            "seconds": str(seconds),
            "date": formatdate(math.ceil(clock.now()) + seconds, usegmt=True),
            "garbage": "soon",
            "negative": "-5",
        }[self.knobs.retry_after]
