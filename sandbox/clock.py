"""The sandbox's time of day: the wall clock at the start, then steady, so that no window meets a step back."""

import time

_offset = time.time() - time.monotonic()


def now() -> float:
    """Return seconds since 1970."""
    return time.monotonic() + _offset
