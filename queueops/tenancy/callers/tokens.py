"""
Tokens of end users (JWT): checks whether a token is genuine, and which user it stands for.

The issuer's row alone says what is trusted: the key, the algorithm, the audience. The token's own header is read only
for the name of its key, to choose among the issuer's known keys.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from typing import Any
from uuid import NAMESPACE_URL, UUID, uuid5

import jwt
from cryptography.fernet import InvalidToken as FernetInvalidToken
from jwt.exceptions import InvalidSubjectError

from queueops.core.errors import QueueOpsError
from queueops.tenancy.secrets.credentials import unseal

from .issuer_keys import IssuerKeysUnavailable, PublishedKey, key_of
from .issuers import KnownIssuer, find_issuer

logger = logging.getLogger(__name__)

MAX_TOKEN_CHARACTERS = 8_192
MAX_SUBJECT_CHARACTERS = 255  # OpenID Connect allows no more
UNREADABLE_SECONDS = 60  # after which callers may retry; a person must set the missing key first
MIN_SECRET_BYTES = 32  # RFC 7518: as long as the digest
SECRET_ENTRY = "hs256"  # noqa: S105 - in the sealed object

CANONICAL_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
NEEDED_CLAIMS = ("exp", "iss", "aud", "sub")

# The faults by PyJWT's exceptions; the first that fits counts. Subclasses come before their bases.
FAULTS: tuple[tuple[type[Exception], str, str], ...] = (
    (jwt.ImmatureSignatureError, "not_yet_valid", "The token is not valid yet: `nbf` or `iat` lies in the future."),
    (jwt.InvalidAudienceError, "wrong_audience", "The token is meant for another audience (`aud`)."),
    (jwt.InvalidIssuerError, "wrong_issuer", "The token is another issuer's (`iss`)."),
    (jwt.MissingRequiredClaimError, "missing_claim", "The token lacks one of `exp`, `iss`, `aud` and `sub`."),
    (InvalidSubjectError, "bad_subject", "The token's subject (`sub`) is no text."),
    (jwt.InvalidAlgorithmError, "wrong_algorithm", "The token is signed in a way that this issuer does not sign."),
    (jwt.InvalidSignatureError, "bad_signature", "The token's signature does not fit."),
    (Exception, "malformed", "This is no token (JWT)."),
)
# A hostile token can make the decoder raise more than PyJWT's own errors.
BROKEN = (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError)


class InvalidToken(QueueOpsError):
    """The token is not valid."""

    code = "invalid_token"
    status = 401
    detail_fields = ("reason",)


class ExpiredToken(QueueOpsError):
    """The token has expired; get a new one."""

    code = "expired_token"
    status = 401


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """
    A genuine token.

    Attributes:
        expires_at: Until when the token is accepted, the issuer's leeway included; seconds since 1970.
    """

    issuer: KnownIssuer
    subject: str
    user_id: UUID
    expires_at: float


def verify_token(token: str, *, may_fetch: bool = True) -> VerifiedToken:
    """
    Check a token against the enabled issuer that it names.

    Args:
        may_fetch: Whether unknown keys of the issuer may be fetched, which may take seconds.

    Raises:
        InvalidToken, ExpiredToken, IssuerKeysUnavailable, CredentialKeysMissing
    """
    name = read_unverified(token)[1].get("iss")
    issuer = find_issuer(name) if isinstance(name, str) else None
    if issuer is None:
        raise InvalidToken("Nobody here knows the token's issuer (`iss`).", reason="unknown_issuer")
    return check_token(token, issuer, may_fetch=may_fetch)


def check_token(token: str, issuer: KnownIssuer, *, may_fetch: bool = True) -> VerifiedToken:
    """
    Check whether a token is this issuer's and valid.

    Raises:
        The errors of `verify_token`.
    """
    header, _ = read_unverified(token)
    key = _key(issuer, header, may_fetch=may_fetch)
    try:
        claims = jwt.decode(
            token,
            key.key,
            algorithms=[key.algorithm],
            audience=issuer.audiences,
            issuer=issuer.issuer,
            leeway=issuer.leeway_seconds,
            options={"require": list(NEEDED_CLAIMS)},
        )
        expires_at = float(claims["exp"]) + issuer.leeway_seconds
    except jwt.ExpiredSignatureError:
        raise ExpiredToken from None
    except BROKEN as error:
        raise _fault(error) from None
    return VerifiedToken(issuer, claims["sub"], user_of(issuer.issuer, claims["sub"]), expires_at)


def read_unverified(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """
    Return header and claims unchecked: anybody could have written them.

    Raises:
        InvalidToken: The text is no JWT, or is longer than MAX_TOKEN_CHARACTERS.
    """
    if len(token) > MAX_TOKEN_CHARACTERS:
        raise InvalidToken(f"The token is longer than {MAX_TOKEN_CHARACTERS:,} characters.", reason="too_long")
    try:
        read = jwt.decode_complete(token, options={"verify_signature": False})
    except BROKEN as error:
        raise _fault(error) from None
    return read["header"], read["payload"]


def user_of(issuer: str, subject: str) -> UUID:
    """
    Return the user that a token's `sub` stands for: the `sub` itself, if it is a UUID in the usual form.

    Any other `sub` is always mapped to the same UUID: `uuid5(NAMESPACE_URL, "<iss> <sub>")`.

    Raises:
        InvalidToken
    """
    if not 0 < len(subject) <= MAX_SUBJECT_CHARACTERS or not subject.isprintable():
        raise InvalidToken("The token's subject (`sub`) is empty, too long or not printable.", reason="bad_subject")
    if CANONICAL_UUID.fullmatch(subject):
        return UUID(subject)
    return uuid5(NAMESPACE_URL, f"{issuer} {subject}")


def _key(issuer: KnownIssuer, header: dict[str, Any], *, may_fetch: bool) -> PublishedKey:
    """
    Raises:
        InvalidToken, IssuerKeysUnavailable, CredentialKeysMissing
    """
    if issuer.secret is not None:
        return PublishedKey("HS256", _open(issuer, issuer.secret))
    kid = header.get("kid")
    found = key_of(issuer, kid, may_fetch=may_fetch)
    if found is None:
        shown = "no key, and the issuer has not exactly one" if kid is None else "a key that its issuer does not have"
        raise InvalidToken(f"The token names {shown}.", reason="unknown_key")
    return found


def _open(issuer: KnownIssuer, secret: bytes) -> bytes:
    try:
        return str(unseal(secret)[SECRET_ENTRY]).encode()
    except FernetInvalidToken:
        logger.error("No key in QUEUEOPS_CREDENTIAL_KEYS opens the secret of the issuer %s", issuer.issuer)  # noqa: TRY400
    raise IssuerKeysUnavailable(retry_after=UNREADABLE_SECONDS)


def _fault(error: Exception) -> InvalidToken:
    reason, message = next((reason, text) for kind, reason, text in FAULTS if isinstance(error, kind))
    if isinstance(error, jwt.MissingRequiredClaimError):
        message = f"The token lacks `{error.claim}`; it needs {', '.join(f'`{name}`' for name in NEEDED_CLAIMS)}."
    return InvalidToken(message, reason=reason)
