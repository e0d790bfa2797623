"""
The public keys that issuers publish (JWKS): fetched, stored, and fetched again when a token names an unknown key.

The keys are stored in the issuer's row. All web processes thus share one fetch and one cool-down, a restart while the
endpoint is down loses nothing, and an operator sees the keys in use.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from django.conf import settings
from django.db import connection
from django.db.models import Q

from queueops.core.clock import Now
from queueops.core.errors import QueueOpsError
from queueops.core.outbound.client import OutboundClient
from queueops.core.outbound.policy import OutboundPolicy
from queueops.tenancy.models import Issuer

from .issuers import KnownIssuer, read_issuer

FRESH_SECONDS = 600  # how long a key that its issuer withdrew may still be accepted
COOL_DOWN_SECONDS = 30  # between two fetches, whatever keys tokens name; a new key may be refused for as long
USABLE_SECONDS = 86_400  # how long the last keys are used while the endpoint is down
FETCH_TIMEOUT_SECONDS = 5.0
MAX_JWKS_BYTES = 256_000
MAX_PUBLISHED_KEYS = 50
MIN_RSA_BITS, MAX_RSA_BITS = 2048, 8192  # shorter keys are broken; with longer ones each check takes milliseconds

# The parts of a published key that are kept, by its type. Anything else, a private part above all, is left out.
PUBLIC_PARTS = {"RSA": ("n", "e"), "EC": ("crv", "x", "y")}
ALGORITHMS = {"RSA": "RS256", "EC": "ES256"}

MAX_FETCH_SECONDS = FETCH_TIMEOUT_SECONDS + 1
RETRY_SECONDS = 2

_fetching: dict[int, threading.Lock] = {}
# Each request that fetches keys, or waits for them, holds a thread: more requests than this are told to come back.
SEATS = 8
_seats = threading.BoundedSemaphore(SEATS)


class IssuerKeysUnavailable(QueueOpsError):
    """The keys of the token's issuer could not be fetched; try again."""

    code = "issuer_keys_unavailable"
    status = 503
    detail_fields = ("retry_after",)


class BadKeySet(QueueOpsError):
    """The answer is no set of keys that tokens can be checked with."""

    code = "bad_key_set"
    status = 502


@dataclass(frozen=True, slots=True)
class PublishedKey:
    """A public key, and the one algorithm that tokens signed with it may name."""

    algorithm: str
    key: Any


def key_of(issuer: KnownIssuer, kid: str | None, *, may_fetch: bool = True) -> PublishedKey | None:
    """
    Return the key that a token names; None: its issuer has no such key.

    Unknown names and keys that are no longer fresh cause at most one fetch in COOL_DOWN_SECONDS, in all processes
    together. A request waits for another request's fetch only if the stored keys lack its key, or are too old.

    Raises:
        IssuerKeysUnavailable: The issuer's keys are unknown or too old, or are being fetched elsewhere; or they must be
            fetched, but `may_fetch` is off.
    """
    found = _find(issuer, kid) if _are_usable(issuer) else None
    if found is not None and issuer.fetched_seconds_ago < FRESH_SECONDS:
        return found
    if not may_fetch:
        if found is None:
            raise IssuerKeysUnavailable(retry_after=RETRY_SECONDS)
        return found
    try:
        issuer = _refreshed(issuer, may_wait=found is None)
    except IssuerKeysUnavailable:
        if found is None:
            raise
        return found
    if not _are_usable(issuer):
        raise IssuerKeysUnavailable(retry_after=RETRY_SECONDS)
    return _find(issuer, kid)


def _are_usable(issuer: KnownIssuer) -> bool:
    return issuer.fetched_seconds_ago < USABLE_SECONDS


def _find(issuer: KnownIssuer, kid: str | None) -> PublishedKey | None:
    """Return the key of this name. A token without a name gets the issuer's key if there is only one."""
    if kid is None:
        named = issuer.jwks if len(issuer.jwks) == 1 else []
    else:
        named = [jwk for jwk in issuer.jwks if jwk.get("kid") == kid]
    return _as_key(json.dumps(named[0])) if named else None


def fetch_keys(issuer_id: int, jwks_url: str) -> int:
    """
    Fetch and store an issuer's keys now, even if they were fetched a moment ago.

    Returns:
        How many keys can be used.

    Raises:
        OutboundRefused, OutboundFailed, BadKeySet: The keys stay as they were; the row says why.
    """
    row = Issuer.objects.filter(pk=issuer_id, jwks_url=jwks_url)
    row.update(jwks_tried_at=Now(), jwks_error="")
    try:
        jwks = read_key_set(_fetch(jwks_url))
    except QueueOpsError as error:
        row.update(jwks_error=error.message[:300])
        raise
    # `row` is filtered by the address: keys of an address that was replaced meanwhile must not be stored.
    row.update(jwks=jwks, jwks_fetched_at=Now(), jwks_error="")
    return len(jwks)


def read_key_set(body: bytes) -> list[dict[str, str]]:
    """
    Return the part of a published set that is stored: the public parts of each key that tokens may be signed with.

    Raises:
        BadKeySet: The body is no key set, or has no key for RS256 or ES256.
    """
    try:
        published = json.loads(body)["keys"]
        jwks = list(_usable(published[:MAX_PUBLISHED_KEYS]))
    except (ValueError, TypeError, KeyError, RecursionError):
        raise BadKeySet('The answer is not JSON like {"keys": [...]}.') from None
    if not jwks:
        raise BadKeySet("The answer has no public key for RS256 (2,048 bits or more) or ES256.")
    return jwks


def _usable(published: list[Any]) -> Iterator[dict[str, str]]:
    for jwk in published:
        if not isinstance(jwk, Mapping) or jwk.get("use", "sig") != "sig":
            continue
        algorithm = ALGORITHMS.get(str(jwk.get("kty")))
        if algorithm is None or jwk.get("alg", algorithm) != algorithm:
            continue
        kept = {part: jwk[part] for part in ("kty", "kid", *PUBLIC_PARTS[jwk["kty"]]) if part in jwk}
        if all(isinstance(part, str) and part.isprintable() for part in kept.values()) and _can_check(kept):
            yield kept


def _can_check(jwk: dict[str, str]) -> bool:
    try:
        key = _as_key(json.dumps(jwk)).key
    except (jwt.PyJWTError, ValueError, KeyError):
        return False
    if isinstance(key, RSAPublicKey):
        return MIN_RSA_BITS <= key.key_size <= MAX_RSA_BITS
    return jwk["crv"] == "P-256"


@lru_cache(maxsize=256)
def _as_key(jwk: str) -> PublishedKey:
    """Return the key of a JWK given as text; cached, because parsing it takes longer than checking a token with it."""
    algorithm = ALGORITHMS[json.loads(jwk)["kty"]]
    return PublishedKey(algorithm, jwt.PyJWK.from_json(jwk, algorithm).key)


def _fetch(jwks_url: str) -> bytes:
    """
    Raises:
        OutboundRefused, OutboundFailed, BadKeySet
    """

    async def get() -> bytes:
        client = OutboundClient()
        try:
            answer = await client.send(
                "GET",
                jwks_url,
                policy=OutboundPolicy.of(allow_loopback=settings.QUEUEOPS.allow_loopback_targets),
                headers={"Accept": "application/json"},
                timeout_seconds=FETCH_TIMEOUT_SECONDS,
                max_response_bytes=MAX_JWKS_BYTES,
                follow_redirects=True,
            )
        finally:
            await client.close()
        if answer.status != 200 or answer.is_truncated:  # noqa: PLR2004
            size = f", more than {MAX_JWKS_BYTES:,} bytes" if answer.is_truncated else ""
            raise BadKeySet(f"The address answered with status {answer.status}{size}.")
        return answer.body

    give_connection_back()
    return asyncio.run(get())


def give_connection_back() -> None:
    """Return the connection to the pool: otherwise requests that wait for a slow endpoint would hold all of them."""
    if not connection.in_atomic_block:
        connection.close()


def _refreshed(issuer: KnownIssuer, *, may_wait: bool) -> KnownIssuer:
    """
    Return the issuer with its keys once they were fetched, by this request or by another.

    Raises:
        IssuerKeysUnavailable: Too many requests wait already, or the fetch did not end in time.
    """
    if issuer.tried_seconds_ago < COOL_DOWN_SECONDS and not _is_being_fetched(issuer):
        return issuer
    lock = _fetching.setdefault(issuer.id, threading.Lock())
    with _seat():
        give_connection_back()
        if not lock.acquire(timeout=MAX_FETCH_SECONDS if may_wait else 0):
            raise IssuerKeysUnavailable(retry_after=RETRY_SECONDS)
        try:
            if _claim_fetch(issuer):
                with suppress(QueueOpsError):  # the row says why, and old keys are better than none
                    fetch_keys(issuer.id, issuer.jwks_url)
        finally:
            lock.release()
    now = read_issuer(issuer.id)
    if now is None or _is_being_fetched(now):
        raise IssuerKeysUnavailable(retry_after=RETRY_SECONDS)
    return now


def _is_being_fetched(issuer: KnownIssuer) -> bool:
    """Whether a fetch, perhaps another process's, has begun lately and neither succeeded nor failed yet."""
    is_open = issuer.tried_seconds_ago < issuer.fetched_seconds_ago and not issuer.has_failed
    return is_open and issuer.tried_seconds_ago < MAX_FETCH_SECONDS


@contextmanager
def _seat() -> Iterator[None]:
    if not _seats.acquire(blocking=False):
        raise IssuerKeysUnavailable(retry_after=RETRY_SECONDS)
    try:
        yield
    finally:
        _seats.release()


def _claim_fetch(issuer: KnownIssuer) -> bool:
    """Claim the next fetch for this process; False: another fetch has begun within the cool-down."""
    row = Issuer.objects.filter(pk=issuer.id, jwks_url=issuer.jwks_url)
    rested = Q(jwks_tried_at=None) | Q(jwks_tried_at__lt=Now() - timedelta(seconds=COOL_DOWN_SECONDS))
    return bool(row.filter(rested).update(jwks_tried_at=Now(), jwks_error=""))
