"""Who looks: a signed-in person or the holder of a producer key, and what of it still holds."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.contrib.sessions.backends.base import SessionBase
from django.http import HttpRequest

from queueops.access.services import sessions
from queueops.tenancy.models import ProducerKey, Project, Scope, digest_of

MAY_VIEW = "jobs.view_job"


@dataclass(frozen=True, slots=True)
class Viewer:
    """
    On whose behalf a page or a socket shows anything.

    Attributes:
        is_staff: Staff who may view jobs. They see every project, unless `project_id` names one.
        project_id: The one project whose work is shown; None: all of them, for staff alone.
        user_id: Only this user's work within the project; None: everybody's.
        name: For people: an account's name or a key's.
        identity: Whose sockets are counted together: `user:<pk>` or `key:<pk>`.
        session_key: Of the session that carries the viewer; empty for a key presented as such.
    """

    is_staff: bool
    project_id: str | None
    user_id: UUID | None
    name: str
    identity: str
    session_key: str = field(default="", repr=False)

    def sees(self, *, project_id: str) -> bool:
        return self.is_staff if self.project_id is None else self.project_id == project_id


def viewer_of_session(session: SessionBase) -> Viewer | None:
    """
    Whom the session stands for: a member of staff who may view jobs, or else the key it was signed in with.

    None of what an expired key, a deactivated account, a changed password or a session that is over left behind counts.
    """
    user = _user_of(session)
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
    """Whom a producer key stands for; None when it is unknown, expired or revoked, or may not read."""
    found = ProducerKey.objects.usable().filter(digest=digest_of(key)).first()
    return _viewer_of(found, session_key="") if found else None


def narrowed(viewer: Viewer, *, project_id: str | None, user_id: UUID | None) -> Viewer | None:
    """The viewer looking at one project, or at one user's work in it; None when that is not the viewer's to see."""
    project_id = project_id or viewer.project_id
    if project_id is None or not viewer.sees(project_id=project_id):
        return None
    if viewer.project_id is None and not Project.objects.filter(pk=project_id).exists():
        return None
    return Viewer(
        is_staff=viewer.is_staff,
        project_id=project_id,
        user_id=user_id or viewer.user_id,
        name=viewer.name,
        identity=viewer.identity,
        session_key=viewer.session_key,
    )


def still_allowed(viewer: Viewer) -> bool:
    """Whether the session still lives and stands for the same viewer, or the key is still usable."""
    return bool(still_allowed_of([viewer]))


def still_allowed_of(viewers: Collection[Viewer]) -> set[Viewer]:
    """Those of the viewers who still may look: one query for all keys, a session once however many look by it."""
    keys = {viewer.identity: viewer for viewer in viewers if not viewer.session_key}
    pks = [int(identity.removeprefix("key:")) for identity in keys]
    usable = ProducerKey.objects.usable().filter(pk__in=pks, scopes__contains=[Scope.READ.value])
    found = {f"key:{pk}" for pk in usable.values_list("pk", flat=True)}
    identities: dict[str, str] = {}
    for session_key in {viewer.session_key for viewer in viewers if viewer.session_key}:
        now = viewer_of_session(stored_session(session_key))
        identities[session_key] = now.identity if now else ""
    return {
        viewer
        for viewer in viewers
        if (identities[viewer.session_key] == viewer.identity if viewer.session_key else viewer.identity in found)
    }


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
        identity=f"key:{key.pk}",
        session_key=session_key,
    )


def _user_of(session: SessionBase) -> Any | None:
    """The account that the session is signed in with, as django.contrib.auth judges it."""
    request = HttpRequest()
    request.session = session
    user: AbstractBaseUser | AnonymousUser = get_user(request)
    return user if user.is_authenticated else None
