"""Why somebody did something, as the audit trail keeps it."""

from __future__ import annotations

from queueops.core.errors import QueueOpsError
from queueops.core.sealing import defused


class ReasonRequired(QueueOpsError):
    """Say why: what this ends cannot be taken back."""

    code = "reason_required"
    status = 422

    def __init__(self) -> None:
        super().__init__(fields={"reason": ["may not be empty"]})


def clean_reason(reason: str | None) -> str:
    """Return the reason without NUL, which PostgreSQL cannot store, and without tokens of sealed values."""
    return defused((reason or "").replace("\0", "")).strip()


def required_reason(reason: str | None) -> str:
    """
    Return the reason for an action that cannot be taken back.

    Raises:
        ReasonRequired: The reason is empty.
    """
    cleaned = clean_reason(reason)
    if not cleaned:
        raise ReasonRequired
    return cleaned
