"""The user whose use is counted, as the server will see it."""

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
    """Whether it is a producer's key, which may act for every user of its project, and not an end user's JWT."""
    return token.startswith(KEY_PREFIX) or "." not in token


def user_of(token: str) -> str:
    """
    Return the user that a JWT is for: its `sub`, or, if that is no UUID, what the server makes of it.

    The signature is the server's to check; this only names the rows of the outbox.

    Raises:
        BadConfiguration: No JWT, or without `sub`.
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
