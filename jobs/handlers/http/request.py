"""`http.request`: one call to any HTTP API."""

import time
from collections.abc import Mapping
from datetime import timedelta
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from jobs.handlers.errors import ProviderError, asks_again, retry_after_of, unanswered
from jobs.handlers.off_loop import off_loop
from jobs.handlers.registry import Done, RunningJob, handler
from jobs.states import CallType
from queueops.core.outbound.client import OutboundFailed, OutboundResponse
from queueops.core.outbound.policy import OutboundRefused
from queueops.core.values.written import member
from ratelimits.feedback import PushBack

from .answers import excerpt_of, json_of, secrets_in, storable, text_of
from .connections import shared_client
from .credential import credential_faults, forget_token_of, shown_of
from .payload import HttpRequest, outbound_policy
from .throttled import throttled

# The headers of an answer that are worth keeping: never Set-Cookie.
KEPT_HEADERS = frozenset(
    {
        "content-type",
        "date",
        "etag",
        "last-modified",
        "link",
        "location",
        "retry-after",
        "x-correlation-id",
        "x-request-id",
    }
)
KEPT_HEADER_PREFIXES = ("ratelimit", "x-ratelimit")


@handler(
    kind="http.request",
    service=lambda payload: f"http:{urlsplit(payload.url).hostname}"[:64],  # so that limits can name a host
    target=lambda payload: payload.url,
    credential=lambda payload: payload.credential,
    credential_faults=credential_faults,
    call_type=CallType.WRITE,
    payload=HttpRequest,
    shown_first=("headers", "text", "json", "credential"),
    idempotent=lambda payload: payload.is_idempotent,
    timeout=timedelta(seconds=60),
    retry="moderate",
)
async def http_request(job: RunningJob[HttpRequest]) -> Done:
    """Call an HTTP API and keep its answer. A batch's callback without a body of its own sends how the batch ended."""
    request = job.payload
    written = member(job.payload_text, "json") if request.json_body is not None and job.payload_text else None
    body, content_type = request.body(job.ended_batch.as_dict() if job.ended_batch else None, written=written)
    headers = dict(request.headers)
    if content_type and not any(name.lower() == "content-type" for name in headers):
        headers["Content-Type"] = content_type
    if request.idempotency_header:
        headers[request.idempotency_header] = job.effect_key

    async def send() -> tuple[OutboundResponse, tuple[str, ...]]:
        shown = await shown_of(request, job.credential)
        try:
            response = await shared_client().send(
                request.method,
                request.url,
                policy=outbound_policy(),
                headers=headers,
                body=body,
                timeout_seconds=max(request.timeout_seconds - (time.monotonic() - started), 0.001),
                max_response_bytes=request.max_response_bytes,
                follow_redirects=request.follow_redirects,
                reuse_connection=request.is_idempotent,
                shown=shown,
            )
        except (OutboundRefused, OutboundFailed) as error:
            raise unanswered(error) from error
        return response, secrets_in(request.headers, shown.texts)

    started = time.monotonic()
    response, secrets = await send()
    # A kept token may have been revoked meanwhile; a 401 means that nothing was done.
    if response.status == HTTPStatus.UNAUTHORIZED and job.credential and forget_token_of(job.credential):
        response, secrets = await send()
    if not request.expects(response.status):
        raise _unexpected(request, response, secrets)
    if found := throttled(response):
        raise _refused(request, response, found, secrets)
    return Done(
        {
            "status": response.status,
            "headers": _kept_headers(response.headers, secrets),
            "body": await off_loop(_body, response, secrets, size=len(response.body)),
            "truncated": response.is_truncated,
            "elapsed_ms": round((time.monotonic() - started) * 1000),
        }
    )


def _body(response: OutboundResponse, secrets: tuple[str, ...]) -> Any:
    media_type = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    is_json = media_type == "application/json" or media_type.endswith("+json")
    if is_json and response.body and not response.is_truncated:
        try:
            return json_of(response.body, secrets)
        except ValueError:
            pass  # a body that is no JSON, though it says so, is kept as text
    return text_of(response.body, response.charset, secrets, is_truncated=response.is_truncated)


def _kept_headers(headers: Mapping[str, str], secrets: tuple[str, ...]) -> dict[str, str]:
    return {
        name.lower(): storable(value, secrets)
        for name, value in headers.items()
        if name.lower() in KEPT_HEADERS or name.lower().startswith(KEPT_HEADER_PREFIXES)
    }


def _refused(
    request: HttpRequest, response: OutboundResponse, found: PushBack, secrets: tuple[str, ...]
) -> ProviderError:
    """Return the error of a call that was refused for a quota under the status of a success."""
    excerpt = excerpt_of(response, secrets)
    return ProviderError(
        HTTPStatus.TOO_MANY_REQUESTS.value,
        f"{request.method} was answered with {response.status}, and refused for a quota: {excerpt}",
        code="throttled",
        retry_after=found.retry_after,
        outcome="answered",
        details={"headers": _kept_headers(response.headers, secrets), "excerpt": excerpt},
        push_back=found,
    )


def _unexpected(request: HttpRequest, response: OutboundResponse, secrets: tuple[str, ...]) -> ProviderError:
    excerpt = excerpt_of(response, secrets)
    return ProviderError(
        response.status,
        f"{request.method} was answered with {response.status}" + (f": {excerpt}" if excerpt else "."),
        code=f"http_{response.status}",
        retry_after=retry_after_of(response),
        outcome="answered",
        details={"headers": _kept_headers(response.headers, secrets), "excerpt": excerpt, **asks_again(response)},
    )
