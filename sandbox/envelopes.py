"""The error envelope of Google's APIs, which the plain API borrows."""

from typing import Any

from aiohttp import web

STATUS_WORDS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    402: "RESOURCE_EXHAUSTED",  # prepaid credit is used up: only the code differs from an exhausted quota's
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


class ApiError(Exception):
    """A provider's refusal, in the provider's own form."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(status)
        self.status, self.body = status, body

    def response(self) -> web.Response:
        return web.json_response(self.body, status=self.status)


class AnswerLost(Exception):
    """The work was done, but the connection breaks before the whole answer is sent."""


class CallerLeft(Exception):
    """The connection broke before the whole call had arrived: nothing was done."""


def envelope(status: int, message: str, details: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    error: dict[str, Any] = {"code": status, "message": message, "status": STATUS_WORDS.get(status, "UNKNOWN")}
    if details:
        error["details"] = details
    return {"error": error}


def google_error(status: int, message: str, details: list[dict[str, Any]] | None = None) -> ApiError:
    return ApiError(status, envelope(status, message, details))


def error_info(reason: str, service: str, **metadata: str) -> dict[str, Any]:
    return {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": reason,
        "domain": "googleapis.com",
        "metadata": {"service": service, **metadata},
    }


def help_link(description: str, url: str) -> dict[str, Any]:
    return {"@type": "type.googleapis.com/google.rpc.Help", "links": [{"description": description, "url": url}]}


def compress(request: web.Request, response: web.StreamResponse) -> None:
    """Compress only for clients that say gzip twice, in Accept-Encoding and in User-Agent, as Google's APIs do."""
    if all("gzip" in request.headers.get(name, "") for name in ("Accept-Encoding", "User-Agent")):
        response.enable_compression(web.ContentCoding.gzip)
