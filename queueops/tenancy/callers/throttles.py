"""
How often one caller may ask.

Each web process counts for itself: two processes let twice as many requests through. This still protects each
process from a single caller, without a query before every request.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from rest_framework.exceptions import Throttled
from rest_framework.request import Request
from rest_framework.throttling import BaseThrottle

from queueops.core.values.rate import Rate
from queueops.core.web.client_address import client_address

BAD_KEYS_PER_MINUTE = 30


class TooManyBadKeys(Throttled):
    default_code = "too_many_bad_keys"
    default_detail = "Too many requests with keys that are not valid."
    extra_detail_singular = extra_detail_plural = ""


# Counts failed look-ups by address. A valid key never counts, so it is not refused when others at its address guess.
bad_keys = Rate(BAD_KEYS_PER_MINUTE)


class CallerThrottle(BaseThrottle):
    """
    Throttles each caller to a number of requests a minute: a key to its own rate, if it has one. Other keys, operators,
    and addresses without a caller get QUEUEOPS_REQUESTS_PER_MINUTE. End users, and addresses that read anonymously, get
    QUEUEOPS_USER_REQUESTS_PER_MINUTE.
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
