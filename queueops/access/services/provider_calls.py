"""Makes the calls of the OpenID Connect library to the provider of single sign-on, by the guarded OutboundClient."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from io import BytesIO
from typing import Any
from urllib.parse import urlsplit

from authlib.integrations.requests_client import OAuth2Session
from django.conf import settings
from requests import ConnectionError as ProviderAway
from requests import PreparedRequest, Response
from requests.adapters import BaseAdapter
from requests.structures import CaseInsensitiveDict

from queueops.core.errors import QueueOpsError
from queueops.core.outbound.client import OutboundClient, OutboundResponse
from queueops.core.outbound.policy import OutboundPolicy

logger = logging.getLogger(__name__)

PROVIDER_SECONDS = 5.0  # for a whole call, while somebody waits
MAX_ANSWER_BYTES = 1_000_000  # of discovery, keys, tokens and user info; common providers send less than 100,000
PASSED_ON = ("Accept", "Authorization", "Content-Type", "User-Agent")


class GuardedSession(OAuth2Session):
    """
    Authlib's session, with every call made by OutboundClient, which bounds bytes and the whole call's time. Internal
    addresses are refused except the issuer's own host and QUEUEOPS_OIDC_PRIVATE_TARGETS. GET follows redirects, and
    each redirect is checked likewise.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        for scheme in ("https://", "http://"):
            self.mount(scheme, _Guard())

    def get_redirect_target(self, resp: Response) -> None:
        """Return None: a redirect that the guard has not followed is returned as the answer."""


class _Guard(BaseAdapter):
    def send(self, request: PreparedRequest, **_: Any) -> Response:  # type: ignore[override]
        """
        Raises:
            ProviderAway: There is no answer or no complete one, or the address may not be called.
        """
        try:
            answer = asyncio.run(_send(request))
        except QueueOpsError as error:
            logger.warning("single sign-on: %s %s: %s", request.method, request.url, error.message)
            raise ProviderAway(error.message, request=request) from error
        if answer.is_truncated:
            said = f"more than {MAX_ANSWER_BYTES:,} bytes"
            logger.warning("single sign-on: %s %s: %s", request.method, request.url, said)
            raise ProviderAway(said, request=request)
        response = Response()
        response.status_code, response.request, response.url = answer.status, request, str(request.url)
        response.headers = CaseInsensitiveDict(answer.headers)
        response.encoding = answer.charset
        response.raw = BytesIO(answer.body)
        vars(response)["_content"] = answer.body  # decompressed already; reading `raw` would decompress it again
        return response

    def close(self) -> None:
        """Do nothing: no connection is kept open."""


async def _send(request: PreparedRequest) -> OutboundResponse:
    """
    Raises:
        OutboundRefused, OutboundFailed
    """
    config = settings.QUEUEOPS
    own_host = urlsplit(config.oidc_issuer).hostname or ""
    policy = OutboundPolicy.of(
        allow_loopback=config.debug or config.allow_loopback_targets, allow=config.oidc_private_targets
    )
    body = request.body
    client = OutboundClient()
    try:
        return await client.send(
            str(request.method),
            str(request.url),
            policy=replace(policy, allowed_hosts=policy.allowed_hosts | {own_host}),
            headers={name: str(request.headers[name]) for name in PASSED_ON if name in request.headers},
            body=body.encode() if isinstance(body, str) else body,  # type: ignore[arg-type]
            timeout_seconds=PROVIDER_SECONDS,
            max_response_bytes=MAX_ANSWER_BYTES,
            follow_redirects=request.method == "GET",
        )
    finally:
        await client.close()
