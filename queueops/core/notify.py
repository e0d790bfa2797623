"""NOTIFY: a hint that something happened. A process that misses the hint finds out by polling."""

from enum import StrEnum
from typing import Any

from django.db import connection


class Channel(StrEnum):
    """Channels of NOTIFY. Payloads are empty, so that a transaction's equal notifications arrive once."""

    READY = "queueops_ready"  # a job may be claimable
    CANCEL = "queueops_cancel"  # a running job was cancelled or reset
    LIMITS = "queueops_limits"  # a limit was changed


def notify(channel: Channel) -> None:
    """Notify when the caller's transaction commits, in one message with COMMIT. Commits with NOTIFY run one by one."""
    ours: Any = connection  # the stubs lack our backend's methods
    ours.announce(channel.value)
