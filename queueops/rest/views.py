"""The base of all API views: the caller, its needs, no content negotiation, lists."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any, ClassVar, TypeVar, cast

from django.db.models import Model, QuerySet
from pydantic import BaseModel
from rest_framework.generics import GenericAPIView
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from queueops.tenancy.callers.authentication import Caller
from queueops.tenancy.callers.permissions import Need
from queueops.tenancy.scope import ANONYMOUS_ROLE, API_ROLE, acting_for, reading_for

from .errors import InvalidIdempotencyKey, InvalidQuery
from .filtering import StrictFilterBackend, refuse_unknown
from .pagination import NewestFirst
from .parsers import parse_as, parse_query_as, read_document

MAX_IDEMPOTENCY_KEY_LENGTH = 200

READS = frozenset({"GET", "HEAD"})

Row = TypeVar("Row", bound=Model)
Input = TypeVar("Input", bound=BaseModel)


class AlwaysJSON(BaseContentNegotiation):
    """Always picks the one renderer: an Accept header has no choice, and must not turn an error into a 406."""

    def select_parser(self, request: Request, parsers: Any) -> BaseParser | None:
        return next((parser for parser in parsers if parser.media_type == request.content_type), None)

    def select_renderer(
        self, request: Request, renderers: Any, format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        return renderers[0], renderers[0].media_type


class CallerView(APIView):
    """
    Closed to end users and to callers without credentials, unless a view says otherwise.

    Attributes:
        for_users: End users may call the view; it shows and changes only their own rows.
        for_anonymous: Anybody who names a project that shows itself to everybody may read here.
        query: By method, query parameters besides `project` that it reads by itself. A list's GET takes its filters.
        unconfined: Methods that act on rows of no project; the database therefore confines them to none.
    """

    needs: ClassVar[Mapping[str, Need]]
    query: ClassVar[Mapping[str, Collection[str]]] = {}
    for_users: ClassVar[bool] = False
    for_anonymous: ClassVar[bool] = False
    unconfined: ClassVar[frozenset[str]] = frozenset()
    content_negotiation_class = AlwaysJSON

    @property
    def caller(self) -> Caller:
        return cast("Caller", self.request.auth)

    @cached_property
    def raw(self) -> bytes:
        """Return the body, as `read_document` reads it."""
        return read_document(self.request)

    def read(self, model: type[Input]) -> Input:
        """Return the body, as `parse_as` parses it."""
        return parse_as(model, self.raw)

    def read_query(self, model: type[Input]) -> Input:
        """Return the query parameters except `project`, as `parse_query_as` parses them."""
        given = self.request.query_params.dict()
        given.pop("project", None)
        return parse_query_as(model, given)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Find the caller, then confine the view to the caller's rows."""
        super().initial(request, *args, **kwargs)
        named = request.query_params.get("project")
        if named and request.auth and named != self.caller.project_id:  # else own rows pass for the named project's
            raise InvalidQuery(fields={"project": [f"the caller is of the project {self.caller.project_id!r} alone"]})
        method = str(request.method)
        # Only HTTP's own methods count: the attribute `query` is no handler for a method QUERY.
        handler = getattr(self, method.lower(), None) if method.lower() in self.http_method_names else None
        if not (request.method in READS and isinstance(self, CallerListView)):  # lists check their filters, too
            refuse_unknown(request, {"project", *self.query.get(method, ()), *getattr(handler, "query", ())})
        if handler is not None and self.confines(method):
            setattr(self, method.lower(), confined(request)(handler))

    def confines(self, method: str) -> bool:
        """Whether the database lets the method see and change the rows of the caller's project alone."""
        return method not in self.unconfined

    def idempotency_key(self) -> str | None:
        """
        Raises:
            InvalidIdempotencyKey
        """
        key = self.request.headers.get("Idempotency-Key")
        if key is not None and not (0 < len(key) <= MAX_IDEMPOTENCY_KEY_LENGTH and key.isascii() and key.isprintable()):
            raise InvalidIdempotencyKey
        return key


@contextmanager
def confined(request: Request) -> Iterator[None]:
    """Confine the block to the caller's rows; methods that write begin their own transactions."""
    caller = cast("Caller", request.auth)
    enter = reading_for if request.method in READS else acting_for
    with enter(caller.project_id, caller.user_id, role=ANONYMOUS_ROLE if caller.is_anonymous else API_ROLE):
        yield


class CallerListView(CallerView, GenericAPIView[Row]):
    """A list, filtered and paged."""

    filter_backends = (StrictFilterBackend,)
    pagination_class = NewestFirst

    def get_queryset(self) -> QuerySet[Row]:
        """No rows: only the OpenAPI document asks, for the model of the filters."""
        serializer: Any = self.serializer_class
        return cast("QuerySet[Row]", serializer.Meta.model.objects.none())

    def listed(self, rows: QuerySet[Row]) -> Response:
        page = self.paginate_queryset(self.filter_queryset(rows))
        return self.get_paginated_response(self.shown(page or []))

    def shown(self, page: Any) -> Any:
        return self.get_serializer(page, many=True).data
