"""The known state of a user's allowance. An outdated answer never raises the known remainder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from queueops_client.usage.clock import seconds_of

REQUESTS = "requests"
TOKENS = "tokens"
RECORD_OVERAGE = "record_overage"


@dataclass(frozen=True, slots=True)
class Heard:
    """
    The allowance's state by one answer of the server; None: the answer does not state that field.

    Attributes:
        remaining: Units neither used nor reserved.
        resets_at: Seconds since 1970, by the server's clock.
    """

    remaining: int
    resets_at: float
    month: str | None = None
    quota: int | None = None
    unit: str | None = None
    policy: str | None = None

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> Heard:
        return cls(
            remaining=int(said["remaining"]),
            resets_at=seconds_of(said["resets_at"]),
            **{name: said.get(name) for name in ("month", "quota", "unit", "policy")},
        )


@dataclass(frozen=True, slots=True)
class Cached:
    """
    Attributes:
        version: The number of answers that were taken in.
    """

    version: int
    unit: str
    policy: str
    month: str
    quota: int
    remaining: int
    resets_at: float


@dataclass(frozen=True, slots=True)
class View:
    """
    The allowance as it is known here and now.

    Attributes:
        remaining: What the server last said, less `unsettled`.
        unsettled: Units used, or about to be, that the server's figure does not contain.
    """

    unit: str
    policy: str
    quota: int
    remaining: int
    unsettled: int
    month: str
    resets_at: float


def merge(cached: Cached | None, heard: Heard, *, version: int) -> Cached | None:
    """
    Return the cached state after an answer was taken in.

    If two requests overlapped, it is unknown which answer the server gave later. The smaller remainder is then kept
    until a request that began after both is answered. The later answer contains whatever either request settled. The
    smaller remainder is safe, because it is not above that answer's.

    Args:
        version: The version that was cached when the request began; 0: nothing was cached.
    """
    if cached is None:
        if heard.month is None or heard.quota is None:
            return None  # an answer to a reservation states too little to begin a cache
        return Cached(
            version=1,
            unit=heard.unit or TOKENS,
            policy=heard.policy or "",
            month=heard.month,
            quota=heard.quota,
            remaining=heard.remaining,
            resets_at=heard.resets_at,
        )
    news = replace(
        cached,
        version=cached.version + 1,
        unit=heard.unit or cached.unit,
        policy=heard.policy or cached.policy,
        quota=cached.quota if heard.quota is None else heard.quota,
        month=heard.month or cached.month,
        remaining=heard.remaining,
        resets_at=heard.resets_at,
    )
    if news.month != cached.month:
        return news if news.month > cached.month else cached
    if version == cached.version:
        return news
    return replace(
        news,
        quota=min(news.quota, cached.quota),
        remaining=min(news.remaining, cached.remaining),
        resets_at=min(news.resets_at, cached.resets_at),
    )


def view(cached: Cached | None, *, unsettled: int, now: float) -> View | None:
    """
    Args:
        unsettled: The unsettled units of the cached month.
        now: The time by the server's clock.

    Returns:
        None: nothing is known, because the server was never asked or the month is over.
    """
    if cached is None or now >= cached.resets_at:
        return None
    return View(
        unit=cached.unit,
        policy=cached.policy,
        quota=cached.quota,
        remaining=cached.remaining - unsettled,
        unsettled=unsettled,
        month=cached.month,
        resets_at=cached.resets_at,
    )


def cost_of(tokens: int, unit: str) -> int:
    return 1 if unit == REQUESTS else tokens
