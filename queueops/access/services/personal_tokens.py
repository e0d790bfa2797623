"""Personal tokens: issued once, shown once, looked up on every request, and refused once they expire or are revoked."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from queueops.access.models import PersonalToken
from queueops.audit import trail
from queueops.core.clock import Now
from queueops.core.errors import QueueOpsError
from queueops.core.values.reasons import required_reason
from queueops.tenancy.models import digest_of

PREFIX = "qp_"  # no producer's key begins with it
TOKEN_CHARACTERS_SHOWN = len(PREFIX) + 8
MAX_TOKEN_DAYS = 90


class BadExpiry(QueueOpsError):
    """A personal token is good for at most 90 days."""

    code = "bad_expiry"
    status = 422


@transaction.atomic
def issue_token(
    user: User, *, name: str, expires_at: datetime, project_id: str | None = None, actor: str
) -> tuple[PersonalToken, str]:
    """
    Issue a token to the person who asks for it.

    Args:
        project_id: The only project that it opens; None: all that the person's role shows.

    Returns:
        The row, and the token's text, which cannot be seen again.

    Raises:
        BadExpiry: The expiry is past, or too far ahead. Nothing was issued.
    """
    if not timezone.now() < expires_at <= timezone.now() + timedelta(days=MAX_TOKEN_DAYS, minutes=1):
        raise BadExpiry(fields={"expires_at": [f"In the future, and at most {MAX_TOKEN_DAYS} days ahead."]})
    secret = PREFIX + secrets.token_urlsafe(32)
    token = PersonalToken.objects.create(
        user=user,
        name=name,
        project_id=project_id,
        expires_at=expires_at,
        prefix=secret[:TOKEN_CHARACTERS_SHOWN],
        digest=digest_of(secret),
    )
    after = {"name": name, "user": f"user:{user.pk}", "project": project_id, "expires_at": expires_at.isoformat()}
    trail.record(
        actor=actor,
        action="issue_personal_token",
        target=f"personal token {token.prefix}",
        after=after,
        project_id=project_id or "",
    )
    return token, secret


@transaction.atomic
def revoke_tokens(ids: Sequence[int], *, actor: str, reason: str) -> int:
    """
    Revoke tokens for good; the next request with any of them is refused. Return how many were revoked.

    Raises:
        ReasonRequired
    """
    reason = required_reason(reason)
    usable = PersonalToken.objects.select_for_update().filter(pk__in=ids, revoked_at=None).order_by("pk")
    for token in usable:
        PersonalToken.objects.filter(pk=token.pk).update(revoked_at=Now())
        trail.record(
            actor=actor,
            action="revoke_personal_token",
            target=f"personal token {token.prefix}",
            reason=reason,
            project_id=token.project_id or "",
        )
    return len(usable)


def find_usable(secret: str) -> PersonalToken | None:
    """
    Return the token with this text, if it may be used now: it has not expired, is not revoked, and its owner is active
    and staff.
    """
    return (
        PersonalToken.objects.select_related("user")
        .filter(
            digest=digest_of(secret),
            revoked_at=None,
            expires_at__gt=Now(),
            user__is_active=True,
            user__is_staff=True,
        )
        .first()
    )


def note_use(token: PersonalToken) -> None:
    """Store when the token was last used, to the minute."""
    if token.last_used_at is None or token.last_used_at < timezone.now() - timedelta(minutes=1):
        PersonalToken.objects.filter(pk=token.pk).update(last_used_at=Now())
