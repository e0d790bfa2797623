"""What all API views share: scoping to the caller's project, answering once, no content negotiation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar, cast
from uuid import UUID

from django.db.models import Model, QuerySet
from rest_framework.exceptions import NotFound
from rest_framework.generics import GenericAPIView
from rest_framework.negotiation import BaseContentNegotiation
from rest_framework.parsers import BaseParser
from rest_framework.renderers import BaseRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from jobs.api.errors import InvalidIdempotencyKey
from jobs.api.filters import StrictFilterBackend
from jobs.api.pagination import NewestFirst
from jobs.services.idempotency import answer_once
from queueops.tenancy.authentication import Caller
from queueops.tenancy.models import Scope
from queueops.tenancy.permissions import Need

MAX_KEY_LENGTH = 200

READ = Need(Scope.READ, "jobs.view_job")
SUBMIT = Need(Scope.SUBMIT, "jobs.add_job")
CANCEL = Need(Scope.SUBMIT, "jobs.cancel_job")
RESCHEDULE = Need(Scope.OPERATE, "jobs.reschedule_job")
REPRIORITISE = Need(Scope.OPERATE, "jobs.reprioritise_job")
PAUSE = Need(Scope.OPERATE, "jobs.pause_work")
REQUEUE = Need(Scope.OPERATE, "jobs.requeue_deadletter")
DISCARD = Need(Scope.OPERATE, "jobs.discard_deadletter")
READ_DEAD_LETTERS = Need(Scope.READ, "jobs.view_deadletter")
READ_OPERATIONS = Need(Scope.READ, "jobs.view_bulkoperation")
OPERATE_BULK = Need(Scope.OPERATE, "jobs.change_bulkoperation")

Effect = Callable[[], tuple[int, dict[str, Any]]]
Row = TypeVar("Row", bound=Model)


class AlwaysJSON(BaseContentNegotiation):
    """One renderer: an Accept header has nothing to choose from, and must not turn an error into a 406."""

    def select_parser(self, request: Request, parsers: Any) -> BaseParser | None:
        return next((parser for parser in parsers if parser.media_type == request.content_type), None)

    def select_renderer(
        self, request: Request, renderers: Any, format_suffix: str | None = None
    ) -> tuple[BaseRenderer, str]:
        return renderers[0], renderers[0].media_type


class ApiView(APIView):
    needs: ClassVar[Mapping[str, Need]]
    content_negotiation_class = AlwaysJSON

    @property
    def caller(self) -> Caller:
        return cast("Caller", self.request.auth)

    def own(self, rows: QuerySet[Row], pk: UUID) -> Row:
        """
        Return the row of the caller's project.

        Raises:
            NotFound: Also for another project's row, so that an id does not tell whether it exists.
        """
        row = rows.filter(project_id=self.caller.project_id, pk=pk).first()
        if row is None:
            raise NotFound
        return row

    def answer(self, effect: Effect, *, digest: Callable[[], str]) -> Response:
        """
        Carry out the effect, or give the stored answer of the same Idempotency-Key.

        Args:
            effect: Returns status and a JSON-able answer.
            digest: Of the request; asked for only when there is a key.
        """
        key = self.idempotency_key()
        if key is None:
            status, body = effect()
            return Response(body, status)
        stored = answer_once(project_id=self.caller.project_id, key=key, body_digest=digest(), effect=effect)
        return Response(
            stored.answer,
            stored.status_code,
            headers={"Idempotency-Replayed": "true"} if stored.replayed else None,
        )

    def idempotency_key(self) -> str | None:
        """
        Raises:
            InvalidIdempotencyKey
        """
        key = self.request.headers.get("Idempotency-Key")
        if key is not None and not (0 < len(key) <= MAX_KEY_LENGTH and key.isascii() and key.isprintable()):
            raise InvalidIdempotencyKey
        return key


class ApiListView(ApiView, GenericAPIView[Row]):
    """A list of the caller's project, filtered and paged."""

    filter_backends = (StrictFilterBackend,)
    pagination_class = NewestFirst

    def listed(self, rows: QuerySet[Row]) -> Response:
        page = self.paginate_queryset(self.filter_queryset(rows))
        return self.get_paginated_response(self.shown(page or []))

    def shown(self, page: Any) -> Any:
        return self.get_serializer(page, many=True).data
