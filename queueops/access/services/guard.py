"""
Locks out people who guess passwords, codes or keys.

The counts are rows, so that all web processes agree and a restart forgets nothing. An attempt is counted before it is
checked: however many attempts are sent at the same time, no more than the limit are checked.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from typing import TypeVar

from django.conf import settings
from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from queueops.access.models import SignInCount
from queueops.audit import trail
from queueops.core.clock import Now
from queueops.core.errors import QueueOpsError
from queueops.core.sql import run_sql

from .trail import tell_failure

Purpose = SignInCount.Purpose
Found = TypeVar("Found")

MAX_FORGOTTEN = 100  # expired counts deleted with each attempt
UNKNOWN = "unknown:"
KNOWN_BROWSER = "browser "


class SignInLocked(QueueOpsError):
    """Too many attempts to sign in."""

    code = "sign_in_locked"
    status = 429
    detail_fields = ("retry_after",)

    @property
    def retry_after(self) -> int:
        return int(self.details["retry_after"])


def guarded(
    purpose: SignInCount.Purpose,
    check: Callable[[], Found | None],
    *,
    account: str = "",
    address: str = "",
    browser: str = "",
) -> Found | None:
    """
    Check something that could be guessed, and count a failure unless `check` returns something true.

    Passwords lock by account and address after QUEUEOPS_LOCKOUT_FAILURES, and by account after
    QUEUEOPS_LOCKOUT_ACCOUNT_FAILURES. Codes lock by account, and keys by address, after QUEUEOPS_LOCKOUT_FAILURES.
    A success deletes the counts of its attempt; a failure is recorded in the audit trail.

    Args:
        check: Makes the check; it is not called while the account or address is locked.
        account: The name that was typed in; the account need not exist.
        browser: A browser in which the account has signed in before. Its attempts have a count of their own: others'
            failures do not lock it.

    Raises:
        SignInLocked: `retry_after` is in seconds, until the lock ends by itself.
    """
    rows = _rows(purpose, known_name(account), address or "unknown", browser)
    with transaction.atomic(durable=True):
        attempts = [_count(purpose, *row) for row in rows]
    run_sql("queueops.access", "forget_sign_ins", {"most": MAX_FORGOTTEN})
    found = check()
    if found:
        for row_account, row_address, _ in rows:
            SignInCount.objects.filter(purpose=purpose, account=row_account, address=row_address).delete()
    else:
        locks = any(attempt >= limit for attempt, (_, _, limit) in zip(attempts, rows, strict=True))
        tell_failure(purpose.value, rows[0][0] or rows[0][1], attempt=attempts[0], locks=locks)
    return found


@transaction.atomic
def unlock(name: str, *, actor: str, reason: str = "") -> int:
    """
    Delete all counts of an account, or of an address for keys. Return how many there were.

    The audit trail records this if a count was deleted.
    """
    forgotten, _ = SignInCount.objects.filter(Q(account=known_name(name)) | Q(account="", address=name)).delete()
    if forgotten:
        trail.record(actor=actor, action="unlock_sign_in", target=f"sign-in {name}", moved=forgotten, reason=reason)
    return forgotten


def known_name(account: str) -> str:
    """Return the name under which an account is counted."""
    if not account or account.startswith(UNKNOWN) or User.objects.filter(username=account).exists():
        return account
    return UNKNOWN + hashlib.sha256(account.encode()).hexdigest()[:32]


def locked_names() -> list[str]:
    """Return the accounts and addresses that are locked now."""
    rows = SignInCount.objects.filter(forget_at__gt=Now()).order_by("account", "address")
    return sorted({row.account or row.address for row in rows if row.failures >= limit_of(row)})


def limit_of(row: SignInCount) -> int:
    """Return how many attempts lock this count."""
    config = settings.QUEUEOPS
    every_address = row.purpose == Purpose.PASSWORD and not row.address
    return int(config.lockout_account_failures if every_address else config.lockout_failures)


def state_of(row: SignInCount) -> str:
    """Return `over`, `counting` or `locked`."""
    if row.forget_at <= timezone.now():
        return "over"
    return "locked" if row.failures >= limit_of(row) else "counting"


def _rows(purpose: SignInCount.Purpose, account: str, address: str, browser: str) -> list[tuple[str, str, int]]:
    """
    Return the counts for an attempt: account, address, limit. Their order is fixed: otherwise two attempts could
    deadlock.
    """
    config = settings.QUEUEOPS
    if purpose == Purpose.PASSWORD and browser:
        return [(account, f"{KNOWN_BROWSER}{browser}", config.lockout_failures)]
    if purpose == Purpose.PASSWORD:
        return [(account, address, config.lockout_failures), (account, "", config.lockout_account_failures)]
    if purpose == Purpose.CODE:
        return [(account, "", config.lockout_failures)]
    return [("", address, config.lockout_failures)]


def _count(purpose: SignInCount.Purpose, account: str, address: str, limit: int) -> int:
    identity = {"purpose": purpose.value, "account": account, "address": address}
    window_seconds = settings.QUEUEOPS.lockout_minutes * 60
    counted = run_sql(
        "queueops.access", "count_sign_in", {**identity, "limit": limit, "window_seconds": window_seconds}
    )
    if counted:
        return int(counted[0][0])
    until = SignInCount.objects.filter(**identity).annotate(now=Now()).values_list("forget_at", "now").first()
    seconds = max(1, math.ceil((until[0] - until[1]).total_seconds())) if until else 1
    raise SignInLocked(
        f"Too many failed attempts. Try again in {_shown(seconds)}, or ask an administrator to unlock it.",
        retry_after=seconds,
    )


def _shown(seconds: int) -> str:
    minutes = math.ceil(seconds / 60)
    return "a minute" if minutes <= 1 else f"{minutes} minutes"
