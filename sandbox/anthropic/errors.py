"""The refusals of the Messages API."""

from uuid import uuid4

from sandbox.envelopes import ApiError
from sandbox.quotas.book import ExhaustedQuota

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
MESSAGES = {
    402: "Your credit balance is too low to access the Anthropic API.",
    429: "This request would exceed your organization's rate limit.",
    500: "Internal server error",
    529: "Overloaded",
}
_UNITS = {"requests": "requests", "input_tokens": "input tokens", "output_tokens": "output tokens"}


def anthropic_error(status: int, message: str) -> ApiError:
    kind = _TYPES.get(status) or ("api_error" if status >= 500 else "invalid_request_error")  # noqa: PLR2004
    error = {"type": kind, "message": message}
    return ApiError(status, {"type": "error", "error": error, "request_id": f"req_{uuid4().hex[:24]}"})


def too_many_requests(violations: tuple[ExhaustedQuota, ...]) -> ApiError:
    """Name the first quota without room, as the service does."""
    if not violations:
        return anthropic_error(429, MESSAGES[429])
    charge = violations[0].charge
    owner = dict(charge.key)
    return anthropic_error(
        429,
        f"This request would exceed your organization's rate limit of {charge.quota.capacity:,} "
        f"{_UNITS[charge.quota.unit]} per minute (org: {owner['project']}, model: {owner['model']}). "
        "For details, refer to: https://docs.claude.com/en/api/rate-limits.",
    )
