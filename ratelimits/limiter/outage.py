"""Behaviour while the limiter's database is out of reach: some limits let calls through, others do not."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from queueops.core.errors import QueueOpsError
from ratelimits.limits.catalogue import last_known_rules
from ratelimits.subjects import Subject

TRY_AGAIN_SECONDS = 1.0


class LimiterUnavailable(QueueOpsError):
    """The limiter's database does not answer, and a limit of this call does not let calls through unseen."""

    code = "limiter_unavailable"
    status = 503
    detail_fields = ("retry_after",)


class Outage:
    """
    Remembers whether the database was out of reach at the last try.

    During an outage one request in TRY_AGAIN_SECONDS tries whether the database is back. The other requests do not wait
    for a connection that takes seconds to fail.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lasts = False
        self._next_try_at = 0.0

    def may_ask(self) -> bool:
        """Say whether the caller should use the database; during an outage one caller in TRY_AGAIN_SECONDS should."""
        if not self._lasts:
            return True
        with self._lock:
            now = time.monotonic()
            if now < self._next_try_at:
                return False
            self._next_try_at = now + TRY_AGAIN_SECONDS
            return True

    def begin(self) -> None:
        with self._lock:
            self._lasts = True
            self._next_try_at = time.monotonic() + TRY_AGAIN_SECONDS

    def end(self) -> None:
        if self._lasts:
            with self._lock:
                self._lasts = False


outage = Outage()


def require_fail_open(subjects: Iterable[Subject]) -> None:
    """
    Return if these calls may go uncounted; raise otherwise.

    The decision goes by the limits that this process read last, however long ago that was. Shadow limits block nothing.

    Raises:
        LimiterUnavailable: A limit that applies is fail-closed, or this process knows no limit that applies.
    """
    known = last_known_rules()
    for subject in subjects:
        applicable = [rule for rule in known if rule.applies_to(subject)]
        if not applicable or not all(rule.fail_open or rule.shadow for rule in applicable):
            raise LimiterUnavailable(retry_after=TRY_AGAIN_SECONDS)
