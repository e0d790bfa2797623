"""
How often one caller may ask.

Counted in each web process for itself: two processes let twice as much through. That protects a
process from one caller without asking the database before every request.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from django.conf import settings
from rest_framework.exceptions import Throttled
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from queueops.core.web.client_address import client_address

MAX_TRACKED = 10_000
BAD_KEYS_PER_MINUTE = 30


class Rate:
    """
    A bucket for each identity that holds a minute's worth and refills steadily (GCRA).

    One number an identity, however high the rate; the oldest identities are forgotten beyond MAX_TRACKED.
    """

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._full_at: dict[str, float] = {}
        self._lock = threading.Lock()

    def take(self, identity: str, per_minute: int | None = None) -> float:
        """
        Take one; return 0, or the seconds to wait when there is none.

        Args:
            per_minute: Where this identity has a rate of its own.
        """
        spacing_seconds = 60 / (per_minute or self._per_minute)
        now = time.monotonic()
        with self._lock:
            full_at = max(now, self._full_at.pop(identity, now)) + spacing_seconds
            wait_seconds = full_at - now - 60
            self._full_at[identity] = full_at if wait_seconds <= 0 else full_at - spacing_seconds
            if len(self._full_at) > MAX_TRACKED:
                del self._full_at[next(iter(self._full_at))]
        return max(0.0, wait_seconds)


class TooManyBadKeys(Throttled):
    default_code = "too_many_bad_keys"
    default_detail = "Too many requests with keys that are not valid."
    extra_detail_singular = extra_detail_plural = ""


# By address, counted only after a look-up failed: nobody's valid key is refused for a neighbour's guesses.
bad_keys = Rate(BAD_KEYS_PER_MINUTE)


class CallerThrottle(BaseThrottle):
    """
    QUEUEOPS_REQUESTS_PER_MINUTE for each operator, each key without a rate of its own and each address that is neither;
    QUEUEOPS_USER_REQUESTS_PER_MINUTE for each end user, and for each address without credentials.
    """

    rate = Rate(settings.QUEUEOPS.requests_per_minute)

    def __init__(self) -> None:
        self._wait_seconds = 0.0

    def allow_request(self, request: Request, view: Any) -> bool:
        caller: Any = request.auth
        if caller:
            self._wait_seconds = self.rate.take(caller.identity, caller.requests_per_minute)
        else:
            self._wait_seconds = self.rate.take(f"address:{client_address(request)}")
        return not self._wait_seconds

    def wait(self) -> float:
        return self._wait_seconds
