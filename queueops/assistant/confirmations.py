"""Confirmations: a preview hands them out, and only with one a change can be made."""

from __future__ import annotations

import hashlib
import json
import secrets
from typing import Any

from django.core.signing import BadSignature, SignatureExpired, dumps, loads

from jobs.services.submit.idempotency import answer_once
from queueops.tenancy.callers.authentication import Caller
from queueops.tenancy.scope import acting_for

from .errors import BadConfirmation, ConfirmationExpired, ConfirmationUsed

CONFIRMATION_SECONDS = 300
SALT = "queueops.assistant.confirmation"


def give(caller: Caller, tool: str, arguments: dict[str, Any], seen: Any) -> str:
    """Sign what was shown: to whom, by which tool and arguments, and the state then. Writes nothing."""
    return dumps([_digest(caller, tool, arguments, seen), secrets.token_hex(16)], salt=SALT)


def take(confirmation: str, caller: Caller, tool: str, *, arguments: dict[str, Any], seen: Any) -> None:
    """
    Use a confirmation up, in a transaction of its own. One of two calls at once goes on. A change that fails afterwards
    must be previewed again.

    Raises:
        ConfirmationExpired, ConfirmationUsed
        BadConfirmation: It was not given for this, to this key, or something has changed since.
    """
    try:
        digest, nonce = loads(confirmation, salt=SALT, max_age=CONFIRMATION_SECONDS)
    except SignatureExpired:
        raise ConfirmationExpired from None
    except (BadSignature, ValueError):
        raise BadConfirmation from None
    if not secrets.compare_digest(str(digest), _digest(caller, tool, arguments, seen)):
        raise BadConfirmation
    key = f"assistant:{nonce}"
    with acting_for(caller.project_id, caller.user_id):
        used = answer_once(project_id=caller.project_id, key=key, body_digest=digest, effect=lambda: (200, {}))
    if used.replayed:
        raise ConfirmationUsed


def _digest(caller: Caller, tool: str, arguments: dict[str, Any], seen: Any) -> str:
    bound = [caller.identity, caller.project_id, tool, arguments, seen]
    return hashlib.sha256(json.dumps(bound, sort_keys=True, default=str).encode()).hexdigest()
