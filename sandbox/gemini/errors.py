"""The refusals of the Gemini API, in every form that the service has been seen to send."""

import math
from random import Random
from typing import Any

from sandbox.envelopes import ApiError, envelope, error_info, google_error, help_link
from sandbox.knobs.providers import GeminiKnobs
from sandbox.quotas.book import ExhaustedQuota

SERVICE = "generativelanguage.googleapis.com"

EXHAUSTED = "Resource has been exhausted (e.g. check quota)."
MESSAGES = {
    400: "Request contains an invalid argument.",
    402: "Your prepayment credits are depleted. Please go to AI Studio at https://ai.studio/projects to manage "
    "your project and billing.",
    403: "Your API key does not have permission to use the specified resource.",
    404: "Requested entity was not found.",
    429: EXHAUSTED,
    499: "The operation was cancelled.",
    500: "An internal error has occurred. Please retry or report in "
    "https://developers.generativeai.google/guide/troubleshooting",
    503: "The model is overloaded. Please try again later.",
    504: "The request timed out. Please try again.",
}

NO_KEY = (
    "Method doesn't allow unregistered callers (callers without established identity). Please use API Key or "
    "other form of API consumer identity to call this API."
)

_URL = "https://ai.google.dev/gemini-api/docs/rate-limits"


def bad_key() -> ApiError:
    message = "API key not valid. Please pass a valid API key."
    locale = {"@type": "type.googleapis.com/google.rpc.LocalizedMessage", "locale": "en-US", "message": message}
    return google_error(400, message, [error_info("API_KEY_INVALID", SERVICE), locale])


def no_such_model(model: str) -> ApiError:
    return google_error(
        404,
        f"models/{model} is not found for API version v1beta, or is not supported for generateContent. "
        "Call ListModels to see the list of available models and their supported methods.",
    )


def too_many_requests(violations: tuple[ExhaustedQuota, ...], model: str, knobs: GeminiKnobs, dice: Random) -> ApiError:
    """Name every quota without room; they share one delay, which is short even if a day's quota is used up."""
    if knobs.error_details == "none" or not violations:
        return google_error(429, EXHAUSTED)
    wait = min(*(violation.wait_seconds for violation in violations), knobs.window_seconds)
    delay = _delay(wait, knobs)
    lines = [
        f"* Quota exceeded for metric: {_metric(violation, knobs)}, limit: {violation.charge.quota.capacity}, "
        f"model: {model}"
        for violation in violations
    ]
    message = (
        "You exceeded your current quota, please check your plan and billing details. For more information on "
        f"this error, head to: {_URL}. \n" + "\n".join(lines)
    )
    details: list[dict[str, Any]] = [
        help_link("Learn more about Gemini API quotas", _URL),
        {
            "@type": "type.googleapis.com/google.rpc.QuotaFailure",
            "violations": [_violation(violation, model, knobs) for violation in violations],
        },
    ]
    if delay is not None:
        message += f"\nPlease retry in {delay}."
        details.append({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay})
    if knobs.error_details == "shuffled":
        dice.shuffle(details)
    return ApiError(429, envelope(429, message, details))


def _violation(violation: ExhaustedQuota, model: str, knobs: GeminiKnobs) -> dict[str, Any]:
    quota = violation.charge.quota
    described = {
        "quotaMetric": _metric(violation, knobs),
        "quotaId": quota.name,
        "quotaDimensions": {"location": "global", "model": model},
    }
    return {**described, "quotaValue": str(quota.capacity)} if knobs.quota_values else described


def _metric(violation: ExhaustedQuota, knobs: GeminiKnobs) -> str:
    unit = "input_token_count" if violation.charge.quota.unit == "tokens" else "requests"
    return f"{SERVICE}/generate_content_{knobs.tier}_tier_{unit}"


def _delay(wait: float, knobs: GeminiKnobs) -> str | None:
    if knobs.retry_delay == "none":
        return None
    if knobs.retry_delay == "seconds":
        return f"{max(1, math.ceil(wait))}s"
    return f"{wait:.9f}s"
