"""Payloads on their way into the database."""

from __future__ import annotations

from queueops.core.sealing import is_whole_sealed, seal_json
from queueops.tenancy.secrets.encryption import is_encrypted


def payloads_to_store(payloads: list[str], project_id: str) -> list[str]:
    """Return payloads as the project stores them. Payloads of requeued jobs may be encrypted already."""
    if not is_encrypted(project_id):
        return payloads
    return [payload if is_whole_sealed(payload) else seal_json(payload) for payload in payloads]
