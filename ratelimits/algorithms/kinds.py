"""Every algorithm by its name in limits and counters."""

from __future__ import annotations

from collections.abc import Mapping

from ratelimits.algorithms.admission import Algorithm
from ratelimits.algorithms.concurrency import Concurrency
from ratelimits.algorithms.fixed_window import FixedWindow
from ratelimits.algorithms.leaky_bucket import LeakyBucket
from ratelimits.algorithms.sliding_window import SlidingWindow
from ratelimits.algorithms.token_bucket import TokenBucket

KINDS: Mapping[str, type[Algorithm]] = {
    made.kind: made for made in (SlidingWindow, TokenBucket, LeakyBucket, FixedWindow, Concurrency)
}
