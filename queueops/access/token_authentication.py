"""Authentication by a personal token. Only views that name this class take one: today the assistant's address."""

from __future__ import annotations

from django.contrib.auth.models import AbstractUser
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from queueops.access.services.personal_tokens import PREFIX, find_usable, note_use
from queueops.core.web.client_address import client_address
from queueops.core.web.refusals import CHALLENGE
from queueops.tenancy.callers.authentication import Caller, InvalidKey, presented_key
from queueops.tenancy.callers.throttles import TooManyBadKeys, bad_keys


class PersonalTokenAuthentication(BaseAuthentication):
    """
    `Authorization: Bearer qp_…`: its owner, with the permissions that their role gives now, in no project yet.

    The token is looked up on every request and never cached: a revoked token, or one of a closed account, is refused at
    once.
    """

    def authenticate(self, request: Request) -> tuple[AbstractUser, Caller] | None:
        secret = presented_key(request)
        if secret is None or not secret.startswith(PREFIX):
            return None
        token = find_usable(secret)
        if token is None:
            if wait_seconds := bad_keys.take(client_address(request)):
                raise TooManyBadKeys(wait_seconds)
            raise InvalidKey
        note_use(token)
        caller = Caller(
            project_id=token.project_id or "",
            actor=f"user:{token.user_id}",
            identity=f"personal:{token.pk}",
            operator=token.user,
            confined=token.project_id is not None,
        )
        return token.user, caller

    def authenticate_header(self, request: Request) -> str:
        return CHALLENGE
