"""What the limiter's addresses refuse; what services refuse has its own classes."""

from __future__ import annotations

from queueops.core.errors import QueueOpsError


class SharedLimit(QueueOpsError):
    """Projects share it, so an operator changes it. A key may give its own project another capacity: an override."""

    code = "shared_limit"
    status = 403
