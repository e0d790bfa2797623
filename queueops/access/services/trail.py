"""Records signing in and out in the audit trail."""

from __future__ import annotations

import threading
import time
from typing import Any

from queueops.audit import trail
from queueops.core.web.asking import asking_person

ANYBODY = "anonymous"
MAX_FAILURES_TOLD = 100  # entries by one web process in FAILURE_SECONDS: a flood cannot fill the table
FAILURE_SECONDS = 3600.0


class FailureBudget:
    """Allows MAX_FAILURES_TOLD entries in FAILURE_SECONDS, counted from the first entry."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._left, self._until = 0, 0.0

    def take(self) -> bool:
        with self._lock:
            if (now := time.monotonic()) >= self._until:
                self._left, self._until = MAX_FAILURES_TOLD, now + FAILURE_SECONDS
            self._left -= 1
            return self._left >= 0


_failures = FailureBudget()


def tell_failure(what: str, name: str, *, attempt: int, locks: bool) -> None:
    """
    Record a failed attempt, unless this process has written MAX_FAILURES_TOLD entries in FAILURE_SECONDS.

    Args:
        what: `password`, `code` or `key`.
        name: The name as it is counted: a digest if no account has this name.
        attempt: The attempt's number since the count began.
    """
    if _failures.take():
        action = "lock_sign_in" if locks else "fail_sign_in"
        trail.record(actor=ANYBODY, action=action, target=f"sign-in {name}", after={"wrong": what, "attempt": attempt})


def tell_second_factor(user: Any) -> None:
    _tell(user, "show_second_factor")


def tell_sign_in(user: Any) -> None:
    _tell(user, "sign_in")


def tell_sign_out(user: Any, **told: Any) -> None:
    """Receive Django's `user_logged_out`."""
    if user is not None:
        _tell(user, "sign_out")


def tell_password(instance: Any, created: bool, **told: Any) -> None:  # noqa: FBT001 - Django's signal
    """
    Receive `post_save` of users, and record a changed password. The page that sets somebody else's password records
    that itself.
    """
    is_set = instance._password is not None  # noqa: SLF001 - no public attribute; None where Django only renews a hash
    actor = asking_person()
    if is_set and not created and actor in ("system", f"user:{instance.pk}"):
        trail.record(actor=actor, action="change_password", target=f"user {instance.get_username()}")


def _tell(user: Any, action: str) -> None:
    trail.record(actor=f"user:{user.pk}", action=action, target=f"sign-in {user.get_username()}")
