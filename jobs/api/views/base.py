"""Base of the queue's views: rows of the caller's project, and answering once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.utils.encoders import JSONEncoder

from jobs.api.serializers.events import SHOWS_TRACEBACKS
from jobs.services.submit.idempotency import answer_once
from queueops.core.telemetry import tracing
from queueops.core.values.masking import masked
from queueops.rest.parsers import digest_of
from queueops.rest.views import CallerListView, CallerView, Row
from queueops.tenancy.callers.permissions import Need, sees_secrets, sees_tracebacks
from queueops.tenancy.models import Scope

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
READ_AUDIT = Need(Scope.AUDIT, "audit.view_auditentry")
OPERATE_BULK = Need(Scope.OPERATE, "jobs.change_bulkoperation")

Effect = Callable[[], tuple[int, dict[str, Any]]]


class ApiView(CallerView):
    """Answers with jobs' data; secrets are masked for callers who may not see them."""

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(response, Response) and not response.exception and not sees_secrets(self.caller.actor):
            response.data = masked(response.data)
        return super().finalize_response(request, response, *args, **kwargs)

    def serializer_context(self) -> dict[str, Any]:
        return {SHOWS_TRACEBACKS: sees_tracebacks(self.caller)}

    def audited(self, reason: str) -> dict[str, Any]:
        """Return the project, the actor and the reason, as services take them for the audit trail."""
        return {"project_id": self.caller.project_id, "actor": self.caller.actor, "reason": reason}

    def own_rows(self, rows: QuerySet[Row]) -> QuerySet[Row]:
        """Rows of the caller's project; if an end user calls, rows of that user alone."""
        mine = {} if self.caller.user_id is None else {"user_id": self.caller.user_id}
        return rows.filter(project_id=self.caller.project_id, **mine)

    def own(self, rows: QuerySet[Row], pk: UUID) -> Row:
        """
        Return one of the caller's rows.

        Raises:
            NotFound: Also for somebody else's row, so that an id does not tell whether it exists.
        """
        row = self.own_rows(rows).filter(pk=pk).first()
        if row is None:
            raise NotFound
        return row

    def answer(self, effect: Effect, *, digest: Callable[[], str] | None = None) -> Response:
        """
        Carry out the effect, or give the stored answer of the same Idempotency-Key.

        Args:
            effect: Returns the status and the content of the answer.
            digest: Digest of a request whose body is not `raw`; called only if there is a key.
        """
        with tracing.from_caller(self.request.headers):
            return self._answer(effect, digest)

    def _answer(self, effect: Effect, digest: Callable[[], str] | None) -> Response:
        key = self.idempotency_key()
        if key is None:
            status, body = effect()
            return Response(body, status)
        stored = answer_once(
            project_id=self.caller.project_id,
            key=key,
            # Another user's request with the same key is another request, however alike they look.
            body_digest=digest_for(self.caller.user_id, digest() if digest else digest_of(self.request, self.raw)),
            effect=lambda: _as_json(*effect()),
        )
        return Response(
            stored.answer,
            stored.status_code,
            headers={"Idempotency-Replayed": "true"} if stored.replayed else None,
        )


class ApiListView(ApiView, CallerListView[Row]):
    """A list of the caller's project."""

    def get_serializer_context(self) -> dict[str, Any]:
        return {**super().get_serializer_context(), **self.serializer_context()}


def _as_json(status: int, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Return times and ids as JSON has them: otherwise the answer could not be stored."""
    return status, json.loads(json.dumps(body, cls=JSONEncoder))


def digest_for(user_id: UUID | None, digest: str) -> str:
    return digest if user_id is None else hashlib.sha256(f"{user_id} {digest}".encode()).hexdigest()
