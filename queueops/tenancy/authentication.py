"""Who calls the API: a producer with a key, or a signed-in operator acting for one project."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, ClassVar
from uuid import UUID

from django.contrib.auth.models import AbstractUser
from django.db.models import BooleanField, ExpressionWrapper, Q
from django.db.models.functions import Now
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from queueops.core.client_address import client_address
from queueops.core.errors import QueueOpsError
from queueops.core.sql import hot_cursor

from .models import ProducerKey, Project, digest_of
from .throttles import TooManyBadKeys, bad_keys

UNUSED_LATELY = Q(last_used_at=None) | Q(last_used_at__lt=Now() - timedelta(minutes=1))
DIGEST_PLACE = "the digest"


class InvalidKey(AuthenticationFailed):
    default_code = "invalid_key"
    default_detail = "The API key is unknown, expired or revoked."


class ProjectRequired(QueueOpsError):
    """Name the project: the parameter `project` or the header X-Project. A session belongs to none."""

    code = "project_required"


class UnknownProject(QueueOpsError):
    """There is no such project."""

    code = "unknown_project"
    status = 404


class StaffOnly(QueueOpsError):
    """Sessions of people who are not staff cannot use the API; use an API key."""

    code = "staff_only"
    status = 403


@dataclass(frozen=True, slots=True)
class Caller:
    """
    On whose behalf a request is carried out: `request.auth` of every authenticated request.

    Attributes:
        actor: `key:<prefix>` or `user:<pk>`, as services and the audit log want it.
        identity: Whose requests are throttled together.
        scopes: Of the key; empty for operators, who have permissions instead.
        operator: The signed-in user; None for a key.
        user_id: The end user who calls, and who sees and does only what is theirs; None: everybody's of the project.
    """

    project_id: str
    actor: str
    identity: str
    scopes: Collection[str] = ()
    operator: AbstractUser | None = None
    user_id: UUID | None = None

    is_authenticated: ClassVar[bool] = True
    is_active: ClassVar[bool] = True
    pk: ClassVar[None] = None


class ProducerKeyAuthentication(BaseAuthentication):
    """
    `Authorization: Bearer qo_…` or `X-Api-Key: qo_…`.

    The key is looked up on every request and never cached, so that a revoked one is refused at once.
    """

    def authenticate(self, request: Request) -> tuple[Caller, Caller] | None:
        secret = presented_key(request)
        if secret is None:
            return None
        found = _find_key(digest_of(secret))
        if found is None:
            if wait_seconds := bad_keys.take(client_address(request)):
                raise TooManyBadKeys(wait_seconds)
            raise InvalidKey
        pk, project_id, prefix, scopes, unused_lately = found
        if unused_lately:
            # Filtered again: parallel requests would each write the row.
            ProducerKey.objects.filter(UNUSED_LATELY, pk=pk).update(last_used_at=Now())
        caller = Caller(project_id=project_id, actor=f"key:{prefix}", identity=f"key:{pk}", scopes=scopes)
        return caller, caller

    def authenticate_header(self, request: Request) -> str:
        return 'Bearer realm="QueueOps"'


class OperatorSessionAuthentication(SessionAuthentication):
    """The admin's session, for one project: `?project=` or the header X-Project. CSRF is enforced."""

    def authenticate(self, request: Request) -> tuple[AbstractUser, Caller] | None:
        signed_in = super().authenticate(request)
        if signed_in is None:
            return None
        user = signed_in[0]
        if not user.is_staff:
            raise StaffOnly
        project_id = request.headers.get("X-Project") or request.query_params.get("project")
        if not project_id:
            raise ProjectRequired
        if "\0" in project_id or not Project.objects.filter(pk=project_id).exists():
            raise UnknownProject
        actor = f"user:{user.pk}"
        return user, Caller(project_id=project_id, actor=actor, identity=actor, operator=user)


def _find_key(digest: str) -> tuple[Any, ...] | None:
    """Look a usable key up: its pk, project, prefix, scopes, and whether it was unused for a minute."""
    statement, parameters = _look_up()
    with hot_cursor() as cursor:
        cursor.execute(statement, [digest if value == DIGEST_PLACE else value for value in parameters])
        return cursor.fetchone()


@cache
def _look_up() -> tuple[bytes, tuple[Any, ...]]:
    """The look-up's SQL, written by the ORM once: that takes longer than running it."""
    rows = (
        ProducerKey.objects.usable()
        .annotate(unused_lately=ExpressionWrapper(UNUSED_LATELY, output_field=BooleanField()))
        .filter(digest=DIGEST_PLACE)
        .values_list("pk", "project_id", "prefix", "scopes", "unused_lately")
    )
    statement, parameters = rows.order_by().query.sql_with_params()
    return statement.encode(), tuple(parameters)


def presented_key(request: Request) -> str | None:
    scheme, _, credentials = str(request.META.get("HTTP_AUTHORIZATION", "")).partition(" ")
    if scheme.lower() == "bearer":
        return credentials.strip()
    key = request.META.get("HTTP_X_API_KEY")
    return None if key is None else str(key).strip()
