"""Errors that the queue's addresses raise; services have their own error classes."""

from queueops.core.errors import QueueOpsError


class WrongState(QueueOpsError):
    """The object's state does not allow this now."""

    code = "wrong_state"
    status = 409
    detail_fields = ("state",)
