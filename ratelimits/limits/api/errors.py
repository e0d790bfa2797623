"""Refusals by the addresses of limits themselves; refusals by services have classes of their own."""

from __future__ import annotations

from queueops.core.errors import QueueOpsError


class SharedLimit(QueueOpsError):
    """Projects share it, so an operator changes it. A key may give its own project another capacity: an override."""

    code = "shared_limit"
    status = 403
