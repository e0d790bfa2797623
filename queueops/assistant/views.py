"""Where assistants reach the tools over HTTP: a neighbour of the API, with the same keys, and for people."""

from __future__ import annotations

from typing import ClassVar

from asgiref.sync import async_to_sync
from django.http import HttpResponse
from rest_framework.request import Request

from dashboards.live.origin import Origin, origin_of
from jobs.api.views.base import READ
from queueops.access.token_authentication import PersonalTokenAuthentication
from queueops.rest.parsers import read_document
from queueops.rest.views import CallerView
from queueops.tenancy.callers.authentication import ProducerKeyAuthentication

from .errors import ForeignOrigin, NotInstalled

PASSED_ON = ("accept", "content-type", "mcp-protocol-version", "mcp-method", "mcp-name")
POST = frozenset({"POST"})


class AssistantView(CallerView):
    """Each tool confines itself: those that write have transactions of their own."""

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
        caller = self.caller
        status, told, body = async_to_sync(answer_http)(lambda: caller, headers, read_document(request))
        return HttpResponse(body, status=status, content_type=told.get("content-type", "application/json"))


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
