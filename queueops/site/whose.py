"""
Finds the owner of the credential in a request, for fair turns and room in the web process. Permissions are checked
later.
"""

from __future__ import annotations

from django.db import DatabaseError, connections

from dashboards.live.viewer import stored_session, user_of
from queueops.access.services import personal_tokens, sessions
from queueops.core.web.askers import CannotTell, ShownCredential
from queueops.tenancy.callers.authentication import find_key, is_token
from queueops.tenancy.callers.issuer_keys import IssuerKeysUnavailable
from queueops.tenancy.callers.tokens import ExpiredToken, InvalidToken, verify_token
from queueops.tenancy.models import ProducerKey, digest_of


def whose(shown: ShownCredential) -> str | None:
    """
    Return the owner of a credential, as a `LookUp` does; None: nobody. Keys and user tokens count as their project.

    Raises:
        CannotTell: The database does not answer, or the keys of a token's issuer would have to be fetched.
    """
    try:
        return _of_session(shown.text) if shown.kind == "session" else _of_secret(shown.text)
    except (InvalidToken, ExpiredToken):
        return None
    except (DatabaseError, IssuerKeysUnavailable) as error:
        raise CannotTell from error
    finally:
        connections.close_all()


def _of_secret(secret: str) -> str | None:
    if is_token(secret):
        return _named(verify_token(secret, may_fetch=False).issuer.project_id)
    if secret.startswith(personal_tokens.PREFIX):
        token = personal_tokens.find_usable(secret)
        return f"user:{token.user_id}" if token else None
    found = find_key(digest_of(secret))
    return _named(found[1]) if found else None


def _of_session(session_key: str) -> str | None:
    session = stored_session(session_key)
    user = user_of(session)
    if not sessions.stands(session, user):
        return None
    if user is not None:
        return f"user:{user.pk}"
    pk = session.get(sessions.PRODUCER_KEY)
    key = ProducerKey.objects.usable().filter(pk=pk).first() if isinstance(pk, int) else None
    return _named(key.project_id) if key else None


def _named(project_id: str) -> str:
    return f"project:{project_id}"
