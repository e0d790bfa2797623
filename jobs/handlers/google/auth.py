"""Access tokens for Google's APIs: stored in the credential, or obtained with a service account's key."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from time import monotonic
from typing import Any
from urllib.parse import urlencode
from weakref import WeakKeyDictionary, WeakValueDictionary

import jwt
from cachetools import TLRUCache
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from jobs.handlers.errors import ProviderError, retry_after_of, unanswered
from jobs.handlers.http.connections import shared_client
from jobs.handlers.http.payload import outbound_policy
from queueops.core.outbound.client import OutboundFailed, OutboundResponse
from queueops.core.outbound.policy import OutboundRefused
from queueops.tenancy.secrets.credentials import OpenCredential

TOKEN_URI = "https://oauth2.googleapis.com/token"  # noqa: S105 - an address
GRANT_TYPE = "urn:ietf:params:oauth:grant-type:jwt-bearer"
LIFETIME_SECONDS = 3600
RENEW_SECONDS = 60  # a token is replaced so long before it expires, so that none expires during a call
TOKEN_TIMEOUT_SECONDS = 30.0
MAX_TOKEN_ANSWER_BYTES = 100_000
MAX_TOKENS = 1_000

_ENTRIES = ("client_email", "private_key")


class _Tokens:
    """The tokens of one event loop: (token, lifetime in seconds) by key and scope."""

    def __init__(self) -> None:
        self.kept: TLRUCache[str, tuple[str, float]] = TLRUCache(MAX_TOKENS, _end, timer=monotonic)
        self.locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()


def _end(name: str, token: tuple[str, float], now: float) -> float:
    seconds = token[1]
    return now + max(seconds - RENEW_SECONDS, seconds / 2)


_tokens: WeakKeyDictionary[asyncio.AbstractEventLoop, _Tokens] = WeakKeyDictionary()


async def access_token(credential: OpenCredential, *, scope: str) -> str:
    """
    Return a token for the header `Authorization: Bearer`.

    The `access_token` of a secret is returned as it is. A service account's key file (`client_email`, `private_key`,
    `token_uri`) is exchanged for a token, which is kept until a minute before its end. Calls that need the token at the
    same time wait for one exchange.

    Raises:
        ProviderError: The secret has neither form, or the exchange was refused or failed. Nothing was sent to the API.
    """
    secret = credential.secret
    if isinstance(secret.get("access_token"), str) and secret["access_token"]:
        return str(secret["access_token"])
    if not all(isinstance(secret.get(name), str) and secret[name] for name in _ENTRIES):
        raise _unusable(credential, "it has neither access_token nor a service account's client_email and private_key")
    name = _name(secret, scope)
    tokens = _tokens.setdefault(asyncio.get_running_loop(), _Tokens())
    async with tokens.locks.setdefault(name, asyncio.Lock()):
        kept = tokens.kept.get(name)
        if kept is None:
            kept = tokens.kept[name] = await _exchange(credential, scope)
        return kept[0]


def forget_token(credential: OpenCredential, *, scope: str) -> bool:
    """Drop a kept token that the API refused; False: no token was kept, so another exchange cannot help."""
    tokens = _tokens.get(asyncio.get_running_loop())
    return tokens is not None and tokens.kept.pop(_name(credential.secret, scope), None) is not None


def _name(secret: dict[str, Any], scope: str) -> str:
    parts = "\0".join([*(str(secret.get(name, "")) for name in (*_ENTRIES, "token_uri")), scope])
    return hashlib.sha256(parts.encode(errors="replace")).hexdigest()


async def _exchange(credential: OpenCredential, scope: str) -> tuple[str, float]:
    response = await _ask(credential, scope)
    if _is_of_the_clock(response) and (ahead := _ahead(response)):
        response = await _ask(credential, scope, ahead=ahead)  # dated by the endpoint's own clock
    return _answer(credential, response)


async def _ask(credential: OpenCredential, scope: str, *, ahead: float = 0.0) -> OutboundResponse:
    uri = str(credential.secret.get("token_uri") or TOKEN_URI)
    # In a thread: loading a key also checks it, which takes many milliseconds.
    assertion = await asyncio.to_thread(_assertion, credential, uri, scope, ahead=ahead)
    body = urlencode({"grant_type": GRANT_TYPE, "assertion": assertion}).encode()
    try:
        return await shared_client().send(
            "POST",
            uri,
            policy=outbound_policy(),
            headers={"Content-Type": "application/x-www-form-urlencoded"},
            body=body,
            timeout_seconds=TOKEN_TIMEOUT_SECONDS,
            max_response_bytes=MAX_TOKEN_ANSWER_BYTES,
        )
    except OutboundRefused as refusal:
        raise unanswered(refusal) from refusal
    except OutboundFailed as failure:
        message = f"no access token: {failure.message}"
        raise ProviderError(None, message, code=failure.details["reason"], outcome="not_sent") from failure


def _is_of_the_clock(response: OutboundResponse) -> bool:
    """Whether the endpoint refuses an assertion because by its clock it is too old, or of the future."""
    return response.status == HTTPStatus.BAD_REQUEST and b"in a reasonable timeframe" in response.body


def _ahead(response: OutboundResponse) -> float:
    """Return how far the endpoint's clock is ahead of this machine's, in seconds; 0: it does not say."""
    try:
        return parsedate_to_datetime(response.headers.get("Date", "")).timestamp() - time.time()
    except (ValueError, OverflowError):
        return 0.0


def _assertion(credential: OpenCredential, audience: str, scope: str, *, ahead: float) -> str:
    """Return a signed JWT (RFC 7523) that asks for the scope; `ahead`: seconds to add to this machine's clock."""
    secret = credential.secret
    try:
        key = load_pem_private_key(secret["private_key"].encode(), password=None)
    except (TypeError, ValueError):
        key = None
    if not isinstance(key, rsa.RSAPrivateKey):
        raise _unusable(credential, "its private_key is no RSA key in PEM form")  # the parser's words could leak it
    now = int(time.time() + ahead)
    claims = {
        "iss": secret["client_email"],
        "scope": scope,
        "aud": audience,
        "iat": now,
        "exp": now + LIFETIME_SECONDS,
    }
    key_id = secret.get("private_key_id")
    return jwt.encode(claims, key, algorithm="RS256", headers={"kid": key_id} if isinstance(key_id, str) else None)


def _answer(credential: OpenCredential, response: OutboundResponse) -> tuple[str, float]:
    try:
        answer = json.loads(response.body)
    except (ValueError, RecursionError):
        answer = None
    answer = answer if isinstance(answer, dict) else {}
    token, seconds = answer.get("access_token"), answer.get("expires_in")
    if response.status == 200 and isinstance(token, str) and token:  # noqa: PLR2004
        if not isinstance(seconds, int | float) or not 0 < seconds <= LIFETIME_SECONDS:
            seconds = LIFETIME_SECONDS
        return token, float(seconds)
    if response.status in {408, 429} or response.status >= 500:  # noqa: PLR2004
        raise ProviderError(
            None,
            f"no access token: the token endpoint answered {response.status}",
            code="token_endpoint_failed",
            retry_after=retry_after_of(response),
            outcome="not_sent",
        )
    words = answer.get("error_description") or answer.get("error")
    said = f": {words[:200]}" if isinstance(words, str) else ""
    raise _unusable(credential, f"the token endpoint answered {response.status}{said}")


def _unusable(credential: OpenCredential, why: str) -> ProviderError:
    message = f"The credential {credential.name!r} cannot be used: {why}."
    return ProviderError(None, message, code="credential_unusable", outcome="refused")
