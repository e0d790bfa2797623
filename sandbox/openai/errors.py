"""The refusals of OpenAI's API."""

from sandbox.envelopes import ApiError

_CODES = {401: "invalid_api_key"}
_TYPES = {401: "invalid_request_error", 403: "invalid_request_error", 404: "invalid_request_error"}


def openai_error(
    status: int, message: str, *, kind: str | None = None, code: str | None = None, param: str | None = None
) -> ApiError:
    code = code or _CODES.get(status)
    kind = kind or _TYPES.get(status) or ("server_error" if status >= 500 else "invalid_request_error")  # noqa: PLR2004
    return ApiError(status, {"error": {"message": message, "type": kind, "param": param, "code": code}})
