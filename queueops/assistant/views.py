"""The HTTP address of the tools, for assistants: it takes the API's keys, and people's personal tokens."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, ClassVar

import pydantic_core
from asgiref.sync import async_to_sync
from django.contrib.auth.models import AbstractUser
from django.http import HttpResponse, JsonResponse
from rest_framework.authentication import BaseAuthentication
from rest_framework.request import Request

from dashboards.live.origin import Origin, origin_of
from jobs.api.views.base import READ
from queueops.access.services.personal_tokens import PREFIX, find_usable, note_use
from queueops.core.web.client_address import client_address
from queueops.core.web.refusals import CHALLENGE
from queueops.rest.parsers import read_document, without_mark
from queueops.rest.views import CallerView
from queueops.tenancy.callers.authentication import Caller, InvalidKey, ProducerKeyAuthentication, presented_key
from queueops.tenancy.callers.throttles import TooManyBadKeys, bad_keys

from .errors import ForeignOrigin, NotInstalled

PASSED_ON = ("accept", "content-type", "mcp-protocol-version", "mcp-method", "mcp-name")
INVALID_REQUEST = -32600  # of JSON-RPC 2.0
POST = frozenset({"POST"})


class PersonalTokenAuthentication(BaseAuthentication):
    """
    `Authorization: Bearer qp_…`: the caller is the token's owner, with the permissions that their role gives now, and
    without a project unless the token has one.

    Only views that name this class take a personal token: today the assistant's address.

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


class AssistantView(CallerView):
    """Leaves confinement to each tool, because tools that write begin their own transactions."""

    needs: ClassVar = {"POST": READ}
    unconfined = POST
    authentication_classes = (PersonalTokenAuthentication, ProducerKeyAuthentication)
    schema = None

    def post(self, request: Request) -> HttpResponse:
        try:
            from .server import answer_http
        except ModuleNotFoundError as error:
            raise NotInstalled from error
        refuse_foreign(request)
        headers = [
            (name.lower().encode("latin1"), value.encode("latin1"))
            for name, value in request.headers.items()
            if name.lower() in PASSED_ON or name.lower().startswith("mcp-")
        ]
        caller, raw = self.caller, without_mark(read_document(request))
        if (refusal := refusal_of(raw)) is not None:
            return JsonResponse(refusal, status=HTTPStatus.BAD_REQUEST)
        status, told, body = async_to_sync(answer_http)(lambda: caller, headers, raw)
        return HttpResponse(body, status=status, content_type=told.get("content-type", "application/json"))


def refusal_of(raw: bytes) -> dict[str, Any] | None:
    """
    Return JSON-RPC's error for a body that is JSON but no message of JSON-RPC; None: the protocol's library decides.
    """
    try:
        given = pydantic_core.from_json(raw)
    except ValueError:
        return None
    if isinstance(given, list):
        told = "an array: send one message a request, there are no batches since the protocol of 2025-06-18"
    elif not isinstance(given, dict):
        told = "a JSON object is wanted"
    elif given.get("jsonrpc") != "2.0":
        told = '"jsonrpc" must be "2.0"'
    elif not (isinstance(given.get("method"), str) or "result" in given or "error" in given):
        told = '"method" must be a text'
    else:
        return None
    asked = given.get("id") if isinstance(given, dict) else None
    is_id = isinstance(asked, str | int) and not isinstance(asked, bool)
    error = {"code": INVALID_REQUEST, "message": f"Invalid Request: {told}."}
    return {"jsonrpc": "2.0", "id": asked if is_id else None, "error": error}


def refuse_foreign(request: Request) -> None:
    """
    Raises:
        ForeignOrigin: A page of another site asks, through a browser.
    """
    named = {name: request.headers[name] for name in ("Host", "Origin") if name in request.headers}
    if "Host" not in named:
        named["Host"] = request.get_host()
    headers = [(name.lower().encode("latin1"), value.encode("latin1")) for name, value in named.items()]
    if origin_of({"headers": headers}) is Origin.FOREIGN:
        raise ForeignOrigin
