"""The API's callers: a producer with a key, an end user with a token, an operator, or anybody where that is allowed."""

from __future__ import annotations

from collections.abc import Collection
from copy import copy
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from typing import Any, ClassVar
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import AbstractUser
from django.db.models import BooleanField, ExpressionWrapper, Q
from django.http import QueryDict
from rest_framework.authentication import BaseAuthentication, SessionAuthentication
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from queueops.core.clock import Now
from queueops.core.errors import QueueOpsError
from queueops.core.sql import hot_cursor
from queueops.core.web.client_address import client_address
from queueops.core.web.refusals import CHALLENGE
from queueops.tenancy.models import KEY_PREFIX, ProducerKey, Project, Scope, digest_of
from queueops.tenancy.moves import refuse_moved

from .throttles import TooManyBadKeys, bad_keys
from .tokens import InvalidToken, verify_token

UNUSED_LATELY = Q(last_used_at=None) | Q(last_used_at__lt=Now() - timedelta(minutes=1))
ANONYMOUS = "anonymous"
READS = frozenset({"GET", "HEAD"})
MOVE = ("project__move", "project__moved_to")
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
        actor: `key:<prefix>`, `token:<issuer>:<user>`, `user:<pk>` or `anonymous`, as services and the audit trail
            expect.
        identity: Requests with the same identity are throttled together.
        scopes: The scopes of the key or the issuer; empty for operators, who have permissions instead.
        operator: The signed-in user; None for all others.
        user_id: The end user who calls, confined to their own rows; None: the caller has all rows of the project.
        requests_per_minute: The caller's own rate; None: QUEUEOPS_REQUESTS_PER_MINUTE applies.
        confined: Whether an operator sees this project alone.
    """

    project_id: str
    actor: str
    identity: str
    scopes: Collection[str] = ()
    operator: AbstractUser | None = None
    user_id: UUID | None = None
    requests_per_minute: int | None = None
    confined: bool = False

    @property
    def sees_all(self) -> bool:
        """Whether the caller may see and change what concerns several projects, as far as their permissions go."""
        return self.operator is not None and not self.confined

    @property
    def is_anonymous(self) -> bool:
        return self.actor == ANONYMOUS

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
        found = find_key(digest_of(secret))
        if found is None:
            if wait_seconds := bad_keys.take(client_address(request)):
                raise TooManyBadKeys(wait_seconds)
            raise InvalidKey
        pk, project_id, prefix, scopes, requests_per_minute, unused_lately, *move = found
        refuse_moved(project_id, *move, reads=_reads(request))
        if unused_lately:
            # Filtered again: otherwise each of several parallel requests would write the row.
            ProducerKey.objects.filter(UNUSED_LATELY, pk=pk).update(last_used_at=Now())
        caller = Caller(
            project_id=project_id,
            actor=f"key:{prefix}",
            identity=f"key:{pk}",
            scopes=scopes,
            requests_per_minute=requests_per_minute,
        )
        return caller, caller

    def authenticate_header(self, request: Request) -> str:
        return CHALLENGE


class TokenAuthentication(BaseAuthentication):
    """
    `Authorization: Bearer <JWT>` of an issuer that a project trusts.

    The issuer is looked up on every request and never cached, so that tokens of a disabled issuer are refused at
    once.
    """

    def authenticate(self, request: Request) -> tuple[Caller, Caller] | None:
        presented = _bearer(request)
        if presented is None or not is_token(presented):
            return None
        try:
            token = verify_token(presented)
        except InvalidToken:
            # Expired tokens are not counted: they were genuine, and the users of one office share an address.
            if wait_seconds := bad_keys.take(client_address(request)):
                raise TooManyBadKeys(wait_seconds) from None
            raise
        refuse_moved(token.issuer.project_id, *token.issuer.move, reads=_reads(request))
        actor = f"token:{token.issuer.id}:{token.user_id}"
        caller = Caller(
            project_id=token.issuer.project_id,
            actor=actor,
            identity=actor,
            scopes=token.issuer.scopes,
            user_id=token.user_id,
            requests_per_minute=settings.QUEUEOPS.user_requests_per_minute,
        )
        return caller, caller


class OperatorSessionAuthentication(SessionAuthentication):
    """The admin's session, for one project: `?project=` or the header X-Project. CSRF is enforced."""

    def authenticate(self, request: Request) -> tuple[AbstractUser, Caller] | None:
        signed_in = super().authenticate(request)
        if signed_in is None:
            return None
        user = signed_in[0]
        if not user.is_staff:
            raise StaffOnly
        project_id = _named_project(request)
        if not project_id:
            raise ProjectRequired
        if "\0" in project_id or (move := _move_of(pk=project_id)) is None:
            raise UnknownProject
        refuse_moved(project_id, *move, reads=_reads(request))
        actor = f"user:{user.pk}"
        return user, Caller(project_id=project_id, actor=actor, identity=actor, operator=user)

    def enforce_csrf(self, request: Request) -> None:
        # The token is in the header. Django would look for it in a form first and read the body, which the view needs.
        bodiless = copy(request._request)  # noqa: SLF001 - no public name for it
        bodiless.POST = QueryDict()
        super().enforce_csrf(bodiless)  # type: ignore[arg-type]  # it uses only what Django's request has


class AnonymousAuthentication(BaseAuthentication):
    """
    Lets a request without credentials read what a project shows to everybody.

    The view must set `for_anonymous`. In other views, and for other projects, the request is answered as one without
    credentials: the answer does not tell which projects exist.
    """

    def authenticate(self, request: Request) -> tuple[Caller, Caller] | None:
        view = (request.parser_context or {}).get("view")
        project_id = _named_project(request)
        if request.method not in READS or not getattr(view, "for_anonymous", False) or not project_id:
            return None
        if "\0" in project_id or (move := _move_of(pk=project_id, anonymous_read=True)) is None:
            return None
        refuse_moved(project_id, *move, reads=True)
        caller = Caller(
            project_id=project_id,
            actor=ANONYMOUS,
            identity=f"anonymous:{client_address(request)}",
            scopes=(Scope.READ.value,),
            requests_per_minute=settings.QUEUEOPS.user_requests_per_minute,
        )
        return caller, caller


def _move_of(**conditions: Any) -> tuple[str, str] | None:
    """Return the state of a project's move to another installation; None: there is no such project."""
    return Project.objects.filter(**conditions).values_list("move", "moved_to").first()


def _reads(request: Request) -> bool:
    return request.method in READS


def _named_project(request: Request) -> str | None:
    return request.headers.get("X-Project") or request.query_params.get("project")


def find_key(digest: str) -> tuple[Any, ...] | None:
    """
    Return a usable key's pk, project, prefix, scopes, rate, whether it was unused for a minute, and its project's move.
    """
    statement, parameters = _look_up()
    with hot_cursor() as cursor:
        cursor.execute(statement, [digest if value == DIGEST_PLACE else value for value in parameters])
        return cursor.fetchone()


@cache
def _look_up() -> tuple[bytes, tuple[Any, ...]]:
    """Return the look-up's SQL. The ORM writes it once, because writing takes longer than running it."""
    rows = (
        ProducerKey.objects.usable()
        .annotate(unused_lately=ExpressionWrapper(UNUSED_LATELY, output_field=BooleanField()))
        .filter(digest=DIGEST_PLACE)
        .values_list("pk", "project_id", "prefix", "scopes", "requests_per_minute", "unused_lately", *MOVE)
    )
    statement, parameters = rows.order_by().query.sql_with_params()
    return statement.encode(), tuple(parameters)


def presented_key(request: Request) -> str | None:
    bearer = _bearer(request)
    if bearer is not None:
        return None if is_token(bearer) else bearer
    key = request.META.get("HTTP_X_API_KEY")
    return None if key is None else str(key).strip()


def is_token(credentials: str) -> bool:
    """Whether the credentials are meant as a token (JWT) rather than a key, which has no dot."""
    return "." in credentials and not credentials.startswith(KEY_PREFIX)


def _bearer(request: Request) -> str | None:
    scheme, _, credentials = str(request.META.get("HTTP_AUTHORIZATION", "")).partition(" ")
    return credentials.strip() if scheme.lower() == "bearer" else None
