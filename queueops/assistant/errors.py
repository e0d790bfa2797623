"""Errors of the assistant's tools, besides those of the API."""

from queueops.core.errors import QueueOpsError, error_body


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


def nothing_found(message: str) -> ApiRefused:
    """Return the API's 404 for an id or a name that the project does not have."""
    return ApiRefused(404, error_body("not_found", message))


class BadConfirmation(QueueOpsError):
    """It was not given to this key for this, or what it would change has changed since: preview again."""

    code = "bad_confirmation"
    status = 409


class ConfirmationExpired(QueueOpsError):
    """The confirmation is older than five minutes: preview again."""

    code = "confirmation_expired"
    status = 409


class ConfirmationUsed(QueueOpsError):
    """The confirmation has been used: preview again."""

    code = "confirmation_used"
    status = 409


class SharedPause(QueueOpsError):
    """A pause of a kind or service holds every project's jobs: operators set and lift it in the admin."""

    code = "shared_pause"
    status = 403


class SharedAlert(QueueOpsError):
    """The alert is not about this project alone: operators look after it in the admin."""

    code = "shared_alert"
    status = 403
