"""Viewers: a signed-in person, the holder of a producer key or an end user; and whether they may still look."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.contrib.sessions.backends.base import SessionBase
from django.http import HttpRequest

from queueops.access.services import sessions
from queueops.tenancy.callers.permissions import sees_secrets
from queueops.tenancy.callers.tokens import InvalidToken, verify_token
from queueops.tenancy.models import Issuer, ProducerKey, Project, Scope, digest_of
from queueops.tenancy.scope import reading_for

MAY_VIEW = "jobs.view_job"
KEY, TOKEN = "key:", "token:"  # the beginnings of identities


@dataclass(frozen=True, slots=True)
class Viewer:
    """
    On whose behalf a page or a socket shows anything.

    Attributes:
        is_staff: Staff who may view jobs. They see every project, unless `project_id` names one.
        project_id: The one project whose work is shown; None: all of them, for staff alone.
        user_id: Only this user's work within the project; None: everybody's.
        name: The name of the account or key, for people to read.
        identity: `user:<pk>`, `key:<pk>` or `token:<issuer>:<user>`.
        session_key: The key of the viewer's session; empty: the viewer showed a producer key or a token instead.
        expires_at: When the viewer's token expires, in seconds since 1970; None: no token.
    """

    is_staff: bool
    project_id: str | None
    user_id: UUID | None
    name: str
    identity: str
    session_key: str = field(default="", repr=False)
    expires_at: float | None = None

    @property
    def shows_key(self) -> bool:
        return not self.session_key and self.identity.startswith(KEY)

    @property
    def counted_with(self) -> str:
        """
        The name under which sockets are counted together: one staff account's sockets, or the sockets of all keys and
        tokens of a project.
        """
        return self.identity if self.is_staff else f"project:{self.project_id}"

    @property
    def sees_secrets(self) -> bool:
        return sees_secrets(self.identity)

    @property
    def issuer_id(self) -> int:
        """The id of the issuer of the viewer's token."""
        return int(self.identity.removeprefix(TOKEN).partition(":")[0])

    def reading(self) -> AbstractContextManager[None]:
        """Return a context for reading what the viewer is shown: in it the database hides all others' rows."""
        return nullcontext() if self.project_id is None else reading_for(self.project_id, self.user_id)

    def sees(self, *, project_id: str) -> bool:
        return self.is_staff if self.project_id is None else self.project_id == project_id


def viewer_of_session(session: SessionBase) -> Viewer | None:
    """
    Return the viewer of a session: a member of staff who may view jobs, or else the key it was signed in with.

    A session does not count once it has ended, its key has expired, its account was deactivated or its password was
    changed.
    """
    user = user_of(session)
    if not sessions.stands(session, user):
        return None
    if user is not None and user.is_active and user.is_staff and user.has_perm(MAY_VIEW):
        return Viewer(
            is_staff=True,
            project_id=None,
            user_id=None,
            name=user.get_username(),
            identity=f"user:{user.pk}",
            session_key=session.session_key or "",
        )
    pk = session.get(sessions.PRODUCER_KEY)
    key = ProducerKey.objects.usable().filter(pk=pk).first() if isinstance(pk, int) else None
    return _viewer_of(key, session_key=session.session_key or "") if key else None


def viewer_of_key(key: str) -> Viewer | None:
    """Return the viewer of a producer key; None when it is unknown, expired or revoked, or may not read."""
    found = ProducerKey.objects.usable().filter(digest=digest_of(key)).first()
    return _viewer_of(found, session_key="") if found else None


def viewer_of_token(token: str) -> Viewer | None:
    """
    Return the viewer of a user's token; None when it is not valid, or its issuer's users may not read.

    Raises:
        ExpiredToken
        IssuerKeysUnavailable
    """
    try:
        verified = verify_token(token)
    except InvalidToken:
        return None
    issuer = verified.issuer
    if Scope.READ.value not in issuer.scopes:
        return None
    return Viewer(
        is_staff=False,
        project_id=issuer.project_id,
        user_id=verified.user_id,
        name=verified.subject,
        identity=f"{TOKEN}{issuer.id}:{verified.user_id}",
        expires_at=verified.expires_at,
    )


def narrowed(viewer: Viewer, *, project_id: str | None, user_id: UUID | None) -> Viewer | None:
    """Return the viewer confined to one project, or to one user's work in it; None when the viewer may not see it."""
    project_id = project_id or viewer.project_id
    if project_id is None or not viewer.sees(project_id=project_id):
        return None
    if viewer.user_id is not None and user_id not in (None, viewer.user_id):
        return None
    if viewer.project_id is None and not Project.objects.filter(pk=project_id).exists():
        return None
    return replace(viewer, project_id=project_id, user_id=user_id or viewer.user_id)


def still_allowed_of(viewers: Collection[Viewer]) -> set[Viewer]:
    """
    Return the viewers who still may look: their session is valid and still of the same viewer, or their key or token is
    usable. One query for all keys, one for all tokens, one for each session.
    """
    return {*_with_session(viewers), *_with_key(viewers), *_with_token(viewers)}


def _with_session(viewers: Collection[Viewer]) -> Iterator[Viewer]:
    identities: dict[str, str] = {}
    for viewer in viewers:
        if viewer.session_key and viewer.session_key not in identities:
            now = viewer_of_session(stored_session(viewer.session_key))
            identities[viewer.session_key] = now.identity if now else ""
        if viewer.session_key and identities[viewer.session_key] == viewer.identity:
            yield viewer


def _with_key(viewers: Collection[Viewer]) -> Iterator[Viewer]:
    pks = {viewer: int(viewer.identity.removeprefix(KEY)) for viewer in viewers if viewer.shows_key}
    rows = ProducerKey.objects.usable().filter(pk__in=set(pks.values()), scopes__contains=[Scope.READ.value])
    usable = set(rows.values_list("pk", flat=True)) if pks else set()
    return (viewer for viewer, pk in pks.items() if pk in usable)


def _with_token(viewers: Collection[Viewer]) -> Iterator[Viewer]:
    now = time.time()
    issuers = {viewer: viewer.issuer_id for viewer in viewers if viewer.expires_at is not None}
    rows = Issuer.objects.filter(pk__in=set(issuers.values()), enabled=True, scopes__contains=[Scope.READ.value])
    usable = set(rows.values_list("pk", flat=True)) if issuers else set()
    return (viewer for viewer, pk in issuers.items() if pk in usable and (viewer.expires_at or 0) > now)


def stored_session(session_key: str) -> SessionBase:
    store: type[SessionBase] = import_module(settings.SESSION_ENGINE).SessionStore
    return store(session_key)


def viewer_of_cookies(cookies: Mapping[str, str]) -> Viewer | None:
    session_key = cookies.get(settings.SESSION_COOKIE_NAME)
    return viewer_of_session(stored_session(session_key)) if session_key else None


def _viewer_of(key: ProducerKey, *, session_key: str) -> Viewer | None:
    if Scope.READ.value not in key.scopes:
        return None
    return Viewer(
        is_staff=False,
        project_id=key.project_id,
        user_id=None,
        name=key.name,
        identity=f"{KEY}{key.pk}",
        session_key=session_key,
    )


def user_of(session: SessionBase) -> Any | None:
    """Return the account that the session is signed in with, as django.contrib.auth judges it."""
    request = HttpRequest()
    request.session = session
    user: AbstractBaseUser | AnonymousUser = get_user(request)
    return user if user.is_authenticated else None
