"""The client's errors. Decide by the class or by `code`; messages are for people and may change."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

SHOWN_ERRORS = 3  # errors of a batch's jobs that the message shows


class ClientError(Exception):
    """
    The base of every error that callers must expect.

    Attributes:
        code: A name that does not change. An error of the client's own has the name of its class, such as
            `bad_configuration`.
    """

    code: str

    def __init_subclass__(cls) -> None:
        cls.code = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", cls.__name__).lower()


class BadConfiguration(ClientError, ValueError):
    """The address, key or another setting cannot be used."""


class Unreachable(ClientError):
    """
    No answer came: no connection, a timeout, or the connection ended early.

    Attributes:
        may_have_arrived: False: the request was never sent whole, so nothing happened.
        idempotency_key: The request's key, if it had one: the same request may safely be sent again with this key.
    """

    def __init__(self, message: str, *, may_have_arrived: bool = True, idempotency_key: str | None = None) -> None:
        super().__init__(message)
        self.may_have_arrived = may_have_arrived
        self.idempotency_key = idempotency_key


class WaitTimeout(ClientError, TimeoutError):
    """
    The job, batch or operation has not ended in time; it goes on.

    Attributes:
        latest: The Job, Batch or Operation as it was last seen; None: the server never answered.
    """

    def __init__(self, message: str, *, latest: Any = None) -> None:
        super().__init__(message)
        self.latest = latest


class ApiError(ClientError):
    """
    The server answered with an error.

    Attributes:
        code: The server's code; `http_502` and the like if the answer was not QueueOps'.
        status: The HTTP status.
        fields: The faults of the input, by field.
        details: More about the error, such as figures.
        retry_after: Seconds after which it is worth while to ask again, where the server said so.
    """

    def __init__(
        self,
        code: str,
        message: str,
        *,
        status: int,
        fields: Mapping[str, list[str]] | None = None,
        details: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.status = status
        self.fields = dict(fields or {})
        self.details = dict(details or {})
        self.retry_after = retry_after

    def __str__(self) -> str:
        return f"{self.message}{_wrong(self.fields)} ({self.code})"


class InvalidRequest(ApiError):
    """The request must be changed: 400, 405, 413, 415 and 422."""


class NotAuthenticated(ApiError):
    """The key or token is missing, unknown, expired or revoked."""


class NotAllowed(ApiError):
    """The key's scopes do not cover this."""


class NotFound(ApiError):
    """The project has nothing with this id."""


class Conflict(ApiError):
    """The present state of the job, batch or other object does not allow this."""


class TooManyRequests(ApiError):
    """Nothing was done; the same request may succeed after `retry_after` seconds."""


class ServerError(ApiError):
    """The server, or a proxy before it, failed."""


class BatchRejected(InvalidRequest):
    """Jobs of the batch are not valid, so none was accepted."""

    @property
    def errors(self) -> list[dict[str, Any]]:
        """The first lines refused: line (from 1), code, message, fields."""
        return list(self.details.get("errors", ()))

    def __str__(self) -> str:
        shown = [
            f"\n  line {error['line']}: {error['message']}{_wrong(error['fields'])}"
            for error in self.errors[:SHOWN_ERRORS]
        ]
        return super().__str__() + "".join(shown)


class IdempotencyKeyReused(InvalidRequest):
    """The idempotency key was used for other work."""


class TooManyJobs(InvalidRequest):
    """There are more jobs than one request takes. Nothing was sent or accepted."""


class ProjectMoved(InvalidRequest):
    """The project lives in another installation now; nothing was done. The key goes on working there."""

    @property
    def address(self) -> str:
        """The address of the other installation; empty: whoever moved the project did not say."""
        return str(self.details.get("address", ""))


class QuotaExceeded(Conflict):
    """The user's allowance for the month is used up."""

    @property
    def remaining(self) -> int:
        return int(self.details.get("remaining", 0))

    @property
    def resets_at(self) -> str | None:
        """When the next month begins, as ISO 8601 text."""
        return self.details.get("resets_at")


class QueueFull(TooManyRequests):
    """The project has too much unfinished work."""


OF_CODE: Mapping[str, type[ApiError]] = {
    "batch_rejected": BatchRejected,
    "idempotency_key_reused": IdempotencyKeyReused,
    "too_many_jobs": TooManyJobs,
    "quota_exceeded": QuotaExceeded,
    "queue_full": QueueFull,
    "project_moved": ProjectMoved,
}
OF_STATUS: Mapping[int, type[ApiError]] = {
    401: NotAuthenticated,
    403: NotAllowed,
    404: NotFound,
    409: Conflict,
    429: TooManyRequests,
}


def _wrong(fields: Mapping[str, list[str]]) -> str:
    return "".join(f" {path or 'input'}: {', '.join(causes).removesuffix('.')}." for path, causes in fields.items())


def error_type(code: str, status: int) -> type[ApiError]:
    """Return the class for an error of the server: by its code, or else by its status."""
    by_family = ServerError if status >= 500 else InvalidRequest if status >= 400 else ApiError  # noqa: PLR2004
    return OF_CODE.get(code) or OF_STATUS.get(status) or by_family
