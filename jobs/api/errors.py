"""Errors that the views of the queue's API raise; services have their own error classes."""

from queueops.core.errors import QueueOpsError


class WrongState(QueueOpsError):
    """The object's state does not allow this now."""

    code = "wrong_state"
    status = 409
    detail_fields = ("state",)
