"""The refusals of the Sheets API, in every form that the service has been seen to send."""

from random import Random
from typing import Any

from sandbox.envelopes import ApiError, envelope, error_info, google_error, help_link
from sandbox.knobs.settings import Knobs
from sandbox.provider import CallIdentity
from sandbox.quotas.book import Quota

SERVICE = "sheets.googleapis.com"

UNAUTHENTICATED = (
    "Request is missing required authentication credential. Expected OAuth 2 access token, login cookie or "
    "other valid authentication credential. See https://developers.google.com/identity/sign-in/web/devconsole-project."
)


MESSAGES = {
    400: "Request contains an invalid argument.",
    401: UNAUTHENTICATED,
    403: "The caller does not have permission",
    404: "Requested entity was not found.",
    500: "Internal error encountered.",
    503: "The service is currently unavailable.",
    504: "Deadline exceeded.",
}


def too_many_requests(quota: Quota, caller: CallIdentity, knobs: Knobs, dice: Random) -> ApiError:
    kind = "Write" if quota.name.startswith("Write") else "Read"
    scope = " per user" if quota.name.endswith("PerUser") else ""
    message = (
        f"Quota exceeded for quota metric '{kind} requests' and limit '{kind} requests per minute{scope}' "
        f"of service '{SERVICE}' for consumer 'project_number:{caller.project}'."
    )
    return ApiError(429, envelope(429, message, _details(quota, caller, knobs, dice)))


def service_disabled(project: str) -> ApiError:
    url = f"https://console.developers.google.com/apis/api/{SERVICE}/overview?project={project}"
    message = (
        f"Google Sheets API has not been used in project {project} before or it is disabled. Enable it by visiting "
        f"{url} then retry. If you enabled this API recently, wait a few minutes for the action to propagate to our "
        "systems and retry."
    )
    info = error_info("SERVICE_DISABLED", SERVICE, consumer=f"projects/{project}", activationUrl=url)
    return google_error(403, message, [help_link("Google developers console API activation", url), info])


def _details(quota: Quota, caller: CallIdentity, knobs: Knobs, dice: Random) -> list[dict[str, Any]]:
    style = knobs.google_sheets.error_details
    if style == "none":
        return []
    metric = "write_requests" if quota.name.startswith("Write") else "read_requests"
    info = error_info(
        "RATE_LIMIT_EXCEEDED",
        SERVICE,
        consumer=f"projects/{caller.project}",
        quota_metric=f"{SERVICE}/{metric}",
        quota_limit=quota.name,
        quota_limit_value=str(quota.capacity),
        quota_location="global",
        quota_unit="1/min/{project}/{user}" if quota.name.endswith("PerUser") else "1/min/{project}",
    )
    link = help_link("Request a higher quota limit.", "https://cloud.google.com/docs/quotas/help/request_increase")
    if style == "no_metadata":
        del info["metadata"]
        return [info]
    if style == "partial":
        info["metadata"] = {name: value for name, value in info["metadata"].items() if dice.random() < 0.5}  # noqa: PLR2004
        return [info, link] if dice.random() < 0.5 else [info]  # noqa: PLR2004 (each is there half of the time)
    return [info, link]
