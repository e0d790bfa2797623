"""Tries a credential with a call that costs nothing and that the provider refuses if the key is unknown."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from jobs.handlers.errors import ProviderError, unanswered
from jobs.handlers.google import auth as google_auth
from jobs.handlers.google import payloads as google_sheets
from jobs.handlers.google.sheets_api import SCOPE
from jobs.handlers.http.answers import error_document
from jobs.handlers.http.connections import shared_client
from jobs.handlers.http.payload import outbound_policy
from jobs.handlers.llm.errors import error_in
from jobs.handlers.llm.providers import DIALECTS
from jobs.handlers.registry import close_handlers
from queueops.core.outbound.client import OutboundFailed
from queueops.core.outbound.policy import OutboundRefused
from queueops.tenancy.secrets.credentials import OpenCredential

TRIAL_SECONDS = 15.0
MAX_BYTES = 1_000_000
REFUSED = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})


def try_credential(credential: OpenCredential) -> bool:
    """
    Ask the provider whether it accepts a credential. Call this in a thread without a running event loop.

    Returns:
        False if there is no known way to ask, as for the services of an app's own handlers.

    Raises:
        ProviderError: The credential is refused or cannot be used, or the provider did not answer.
    """

    async def trial() -> bool:
        try:
            return await _try(credential)
        finally:
            await close_handlers()

    return asyncio.run(trial())


async def _try(credential: OpenCredential) -> bool:
    if credential.service == google_sheets.SERVICE:
        if "private_key" not in credential.secret:
            return False  # a stored access token: only a call about a spreadsheet could try it
        google_auth.forget_token(credential, scope=SCOPE)
        await google_auth.access_token(credential, scope=SCOPE)
        return True
    key = str(credential.secret.get("api_key", "")).strip()
    dialect = DIALECTS.get(credential.service)
    asked = dialect.models(credential.base_url, key) if dialect else None
    if asked is None:
        return False
    await _list_models(*asked)
    return True


async def _list_models(url: str, headers: dict[str, str]) -> None:
    try:
        answer = await shared_client().send(
            "GET",
            url,
            policy=outbound_policy(),
            headers=headers,
            timeout_seconds=TRIAL_SECONDS,
            max_response_bytes=MAX_BYTES,
        )
    except (OutboundRefused, OutboundFailed) as error:
        raise unanswered(error) from error
    said = error_in(error_document(answer)) if answer.status >= HTTPStatus.BAD_REQUEST else {}
    # Gemini answers 400 for an unknown key. Other failures pass: a server that lists no models did accept the key.
    if answer.status in REFUSED or "API_KEY_INVALID" in str(said.get("details", "")):
        raise ProviderError(
            answer.status, f"It was answered with {answer.status}.", code="credential_refused", outcome="answered"
        )
