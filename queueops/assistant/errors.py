"""What the assistant's tools refuse, besides what the API refuses."""

from queueops.core.errors import QueueOpsError


class NotInstalled(QueueOpsError):
    """The server for assistants is not installed: add the extra `queueops[mcp]`."""

    code = "assistant_not_installed"
    status = 501


class ForeignOrigin(QueueOpsError):
    """Pages of other sites may not talk to the assistant's address."""

    code = "foreign_origin"
    status = 403


class UnknownTool(QueueOpsError):
    """There is no such tool."""

    code = "unknown_tool"
    status = 404
    detail_fields = ("tools",)


class NoSuchThing(QueueOpsError):
    """The project has nothing of that id or name."""

    code = "not_found"
    status = 404


class Ambiguous(QueueOpsError):
    """Several things fit; name one of them in full."""

    code = "ambiguous"
    status = 422
    detail_fields = ("found",)


class AnswerTooLarge(QueueOpsError):
    """The answer is too large to be shown; ask for less."""

    code = "answer_too_large"
    status = 422
    detail_fields = ("characters", "limit")


class ApiRefused(QueueOpsError):
    """A view of the API answered with an error; `body` is its answer."""

    def __init__(self, status: int, body: dict[str, object]) -> None:
        super().__init__(f"The API answered {status}.")
        self.body = body
