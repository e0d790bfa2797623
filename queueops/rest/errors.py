"""Errors of the requests themselves; refusals by services have classes of their own."""

from queueops.core.errors import QueueOpsError


class MalformedJSON(QueueOpsError):
    """The body is not valid JSON."""

    code = "malformed_json"
    status = 400
    detail_fields = ("line", "column")


class TooDeep(QueueOpsError):
    """The body is nested too deep; 200 levels are allowed."""

    code = "too_deep"
    status = 400


class IncompleteBody(QueueOpsError):
    """The connection ended before the body did."""

    code = "incomplete_body"
    status = 400


class MalformedGzip(QueueOpsError):
    """The body is said to be gzip and is not."""

    code = "malformed_gzip"
    status = 400


class UnsupportedEncoding(QueueOpsError):
    """The body has a Content-Encoding other than gzip."""

    code = "unsupported_encoding"
    status = 415


class InvalidInput(QueueOpsError):
    """The body is not what this address takes."""

    code = "invalid_input"
    status = 422


class InvalidQuery(QueueOpsError):
    """Query parameters are not what this address takes."""

    code = "invalid_query"
    status = 400


class InvalidIdempotencyKey(QueueOpsError):
    """Idempotency-Key must be 1 to 200 printable ASCII characters."""

    code = "invalid_idempotency_key"
    status = 400
