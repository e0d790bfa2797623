"""Errors of the client's own; the server's refusals are in `queueops_client.errors`."""

from __future__ import annotations

from queueops_client.errors import ClientError


class QuotaUnavailable(ClientError):
    """
    This use may not begin without asking the server, and the server did not answer.

    Attributes:
        retry_after: Seconds after which to try again, if the server stated them.
    """

    def __init__(self, message: str, *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class OutboxFailed(ClientError):
    """The outbox's file cannot be used: no room, no permission, damaged, or locked for too long."""


class OutboxFull(OutboxFailed):
    """The outbox holds as many rows as it may. The use was refused before its call; nothing is dropped."""


class TrackerClosed(ClientError):
    """The tracker was closed. Uses that had begun are still written down."""


class TokensNotSet(UserWarning):
    """A use ended without `usage.tokens`; its estimate was counted."""
