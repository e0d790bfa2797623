"""What the addresses of the queue refuse; what services refuse has its own classes."""

from queueops.core.errors import QueueOpsError


class WrongState(QueueOpsError):
    """The state it is in now does not allow this."""

    code = "wrong_state"
    status = 409
    detail_fields = ("state",)
