"""The error for a port that cannot be used, worded alike for every server."""

from __future__ import annotations

from queueops.core.errors import QueueOpsError


class PortTaken(QueueOpsError):
    """Another process listens there, or this one may not."""

    code = "port_taken"
    status = 500

    def __init__(self, *, host: str, port: int, reason: str, variable: str = "QUEUEOPS_PORT") -> None:
        super().__init__(
            f"Port {port} on {host} cannot be used ({reason}). Stop what uses it, or set {variable} to another."
        )
