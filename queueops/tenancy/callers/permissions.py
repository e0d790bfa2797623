"""Permissions of callers: scopes of a key or of a token's issuer, permissions of an operator."""

from __future__ import annotations

from typing import Any, NamedTuple

from rest_framework.permissions import BasePermission
from rest_framework.request import Request

from queueops.core.errors import QueueOpsError
from queueops.tenancy.models import Scope

from .authentication import Caller


class MissingScope(QueueOpsError):
    """The scopes of the key, or of the token's issuer, do not cover this."""

    code = "missing_scope"
    status = 403
    detail_fields = ("needed", "given")


class MissingPermission(QueueOpsError):
    """The operator's permissions do not cover this."""

    code = "missing_permission"
    status = 403
    detail_fields = ("needed",)


class NotForUsers(QueueOpsError):
    """This address is not for end users: it concerns the whole project."""

    code = "not_for_users"
    status = 403


class Need(NamedTuple):
    """The right that a method requires: a scope of callers with a key or token, a permission of operators."""

    scope: Scope
    permission: str


class MeetsNeed(BasePermission):
    """
    Lets a caller in who meets the need of the view's method. A method that is missing in the view's `needs` raises a
    KeyError. End users are let in only if the view sets `for_users`: it then shows and changes only their own rows.
    """

    def has_permission(self, request: Request, view: Any) -> bool:
        caller = request.auth
        if not isinstance(caller, Caller):
            return False
        method = "GET" if request.method == "HEAD" else request.method or ""
        # Only HTTP's methods count: an attribute `query` of a view does not handle a method QUERY.
        if method != "OPTIONS" and method.lower() in view.http_method_names and hasattr(view, method.lower()):
            if caller.user_id is not None and not view.for_users:
                raise NotForUsers
            ensure(caller, view.needs[method])
        return True


def sees_secrets(actor: str) -> bool:
    """
    Whether this caller is shown secrets in jobs' contents and providers' answers: one rule for the API and all pages.

    Only callers with a project's key are shown secrets: its producers sent them. People are not, because others can see
    their screens. End users are not: their jobs may hold credentials of the app's backend. Anonymous readers may be
    anybody. People get the secrets only by an export, which needs a permission of its own and is audited.

    Args:
        actor: As in `Caller.actor`.
    """
    return actor.startswith("key:")


def sees_tracebacks(caller: Caller) -> bool:
    """
    Whether this caller, who may see the job, is also shown the traceback of its handler.

    People with a session are shown the traceback: they repair the handler. Producers, end users and anonymous readers
    are not: the handler's code is the operator's.
    """
    return caller.operator is not None


def ensure(caller: Caller, need: Need) -> None:
    """
    Raises:
        MissingScope, MissingPermission
    """
    if caller.operator is None:
        if need.scope.value not in caller.scopes:
            raise MissingScope(
                f"The key or the token's issuer needs the scope {need.scope.value!r}.",
                needed=need.scope.value,
                given=sorted(caller.scopes),
            )
    elif not caller.operator.has_perm(need.permission):
        raise MissingPermission(f"You need the permission {need.permission}.", needed=need.permission)
