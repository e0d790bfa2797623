"""Reads which user a token is for, as the server will read it."""

from __future__ import annotations

import base64
import binascii
import json
import re
from uuid import NAMESPACE_URL, UUID, uuid5

from queueops_client.errors import BadConfiguration

KEY_PREFIX = "qo_"
CANONICAL_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def is_key(token: str) -> bool:
    """Whether a token is a producer's key, which may act for every user of its project, and not an end user's JWT."""
    return token.startswith(KEY_PREFIX) or "." not in token


def user_of(token: str) -> str:
    """
    Return the user that a JWT is for: its `sub`, or, if that is no UUID, the UUID that the server derives from it.

    Only the server checks the signature; here the user only names the rows of the outbox.

    Raises:
        BadConfiguration: The token is no JWT, or has no `sub`.
    """
    try:
        part = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
        subject = str(claims["sub"])
    except (IndexError, KeyError, TypeError, ValueError, binascii.Error):
        raise BadConfiguration("The token names no user; give user_id.") from None
    if CANONICAL_UUID.fullmatch(subject):
        return str(UUID(subject))
    return str(uuid5(NAMESPACE_URL, f"{claims.get('iss', '')} {subject}"))
