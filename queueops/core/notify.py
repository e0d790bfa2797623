"""NOTIFY: a hint that something happened. Whoever misses it finds out by polling."""

from enum import StrEnum
from typing import Any

from django.db import connection


class Channel(StrEnum):
    """Payloads are empty: identical notifications of one transaction arrive once."""

    READY = "queueops_ready"  # a job may be claimable
    CANCEL = "queueops_cancel"  # a running job was cancelled or reset
    LIMITS = "queueops_limits"  # a limit was changed


def notify(channel: Channel) -> None:
    """Notify at the commit of the caller's transaction, in one message with it. Commits with NOTIFY queue up."""
    ours: Any = connection  # the stubs do not know our backend
    ours.announce(channel.value)
