"""
The audit trail, from below: this app knows nobody who keeps one.

Whoever does connects to `recorded` and writes in the sender's transaction.
"""

from __future__ import annotations

from typing import Any

from django.dispatch import Signal

recorded = Signal()


def record(
    *,
    actor: str,
    action: str,
    target: str,
    before: Any = None,
    after: Any = None,
    reason: str = "",
    project_id: str = "",
) -> None:
    """
    Tell of one change, in the transaction that makes it.

    Args:
        actor: `user:<pk>`, `key:<prefix>`, `executor:<id>` or `provider:<service>`.
        action: Verb first, `update_limit`.
        target: `limit <name>`, `counter <id>`, `reservation <id>`.
        before, after: JSON-able. Nothing secret.
    """
    recorded.send(
        sender=None,
        actor=actor,
        action=action,
        target=target,
        before=before,
        after=after,
        reason=reason,
        project_id=project_id,
    )
