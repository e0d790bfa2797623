"""Numbers of things in words, and sizes in bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence

MEGABYTE = 1_000_000
ENVELOPE_BYTES = 100_000  # room for the keys, names and form fields around the largest payload


def numbered(count: int, one: str, many: str = "", *, before: str = "") -> str:
    """
    Return `1 job waits` or `1,234 jobs wait`, from `job waits` and `jobs wait`; `2 calls` from `call` alone.

    Args:
        before: A text to put before a number other than one, such as `at least `.
    """
    return f"1 {one}" if count == 1 and not before else f"{before}{count:,} {many or f'{one}s'}"


def nearest_rank(samples: Sequence[float], percent: int) -> float:
    """
    Return the smallest sample that at least so many percent of the samples do not exceed.

    Raises:
        ValueError: There are no samples.
    """
    if not samples:
        raise ValueError(f"the p{percent} of no samples")
    return sorted(samples)[math.ceil(len(samples) * percent / 100) - 1]
