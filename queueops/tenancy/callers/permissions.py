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
    """The need of a method: this scope of a key, this permission of an operator."""

    scope: Scope
    permission: str


class MeetsNeed(BasePermission):
    """
    Views say in `needs` what each of their methods needs; one that says nothing raises a KeyError. End users are let in
    only where the view says `for_users`: that it shows and changes nothing but what is theirs.
    """

    def has_permission(self, request: Request, view: Any) -> bool:
        caller = request.auth
        if not isinstance(caller, Caller):
            return False
        method = "GET" if request.method == "HEAD" else request.method or ""
        # Only HTTP's own methods count: the attribute `query` of a view is no handler of QUERY.
        if method != "OPTIONS" and method.lower() in view.http_method_names and hasattr(view, method.lower()):
            if caller.user_id is not None and not view.for_users:
                raise NotForUsers
            ensure(caller, view.needs[method])
        return True


def sees_secrets(actor: str) -> bool:
    """
    Whether this caller is shown the secrets in what jobs hold and providers said: the one rule, for every surface.

    A project's key is: its producers sent them. Nobody else is. People look over each other's shoulders. An end user is
    shown jobs into which the app's backend put its own credentials. Anonymous readers are anybody. People get the
    secrets by an export alone; it has a permission of its own and is audited.

    Args:
        actor: As in `Caller.actor`.
    """
    return actor.startswith("key:")


def sees_tracebacks(caller: Caller) -> bool:
    """
    Whether this caller, who may see the job, is also shown where its handler's code broke.

    People with a session are: they mend it. Producers, end users and anonymous readers are not: the code is the
    operator's, and none of their business.
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
