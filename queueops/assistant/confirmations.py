"""Confirmations: a preview returns one, and a change can be made only with a confirmation."""

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
    """
    Return a confirmation: a signed digest of the caller, the tool, its arguments and the state shown. Writes nothing.
    """
    return dumps([_digest(caller, tool, arguments, seen), secrets.token_hex(16)], salt=SALT)


def take(confirmation: str, caller: Caller, tool: str, *, arguments: dict[str, Any], seen: Any) -> None:
    """
    Use a confirmation up, in a transaction of its own. If two calls use it at once, one is refused. A change that fails
    afterwards must be previewed again.

    Raises:
        ConfirmationExpired, ConfirmationUsed
        BadConfirmation: It was given for another change, to another caller, or the state has changed since.
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
