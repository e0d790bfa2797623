"""What the queue's views share: rows of the caller's project, and answering once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from rest_framework.exceptions import NotFound
from rest_framework.response import Response

from jobs.services.idempotency import answer_once
from queueops.rest.views import CallerListView, CallerView, Row
from queueops.tenancy.models import Scope
from queueops.tenancy.permissions import Need

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


class ApiView(CallerView):
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


class ApiListView(ApiView, CallerListView[Row]):
    """A list of the caller's project."""
