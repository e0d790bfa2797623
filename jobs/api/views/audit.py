"""The audit trail: what people and keys changed."""

from __future__ import annotations

import time
from typing import Any, ClassVar

from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api import examples
from jobs.api.filters import AuditFilterSet
from jobs.api.log_pages import LogPages
from jobs.api.serializers.audit import AuditEntrySerializer
from queueops.audit.models import AuditEntry, ProjectAuditEntry
from queueops.audit.stream import settled_id
from queueops.rest.schema import operation
from queueops.rest.views import READS
from queueops.tenancy.callers.permissions import MissingPermission

from .base import READ_AUDIT, ApiListView

MAX_SETTLING_SECONDS = 1.0  # how long an answer waits for entries whose transactions are open


class TrailPages(LogPages):
    """
    Newest first, with all visible entries; or oldest first.

    Oldest first stops where an earlier entry could still appear, so there always is a cursor to go on from.
    """

    def page(self, rows: QuerySet[Any], *, after: Any, size: int, view: Any) -> tuple[list[Any], Any]:
        if not view.is_oldest_first:
            return super().page(rows, after=after, size=size, view=view)
        after = after or 0
        found = list(rows.filter(pk__gt=after, pk__lte=view.settled_id).order_by("pk")[:size])
        return found, found[-1].pk if found else after  # only up to here: after a crash, unseen entries come again


class AuditList(ApiListView[ProjectAuditEntry]):
    needs: ClassVar = {"GET": READ_AUDIT}
    serializer_class = AuditEntrySerializer
    filterset_class = AuditFilterSet
    pagination_class = TrailPages
    settled_id = 0

    @property
    def is_oldest_first(self) -> bool:
        return self.request.query_params.get("order") == "oldest"

    @property
    def is_of_all(self) -> bool:
        return self.request.query_params.get("all_projects") == "true"

    def confines(self, method: str) -> bool:
        return not (self.is_of_all and self.caller.sees_all)

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if self.is_oldest_first and request.method in READS:
            # Wait before the confinement begins a transaction: otherwise the transaction would stay open for so long.
            self.settled_id = settled_id(time.monotonic() + MAX_SETTLING_SECONDS)

    @operation(
        "List what people and keys changed, newest first",
        operation_id="audit_list",
        errors=[410],
        answer=AuditEntrySerializer(many=True),
        example=examples.AUDIT_ENTRY,
        description="Of the project; secrets are masked. `order=oldest` is for a collector: it gets every entry once,"
        " in the order of their ids, and none later that would come before. There `next_cursor` is never null: after"
        " the last page, which may be empty, ask again with it. An entry whose transaction is open"
        " holds those behind it.",
    )
    def get(self, request: Request) -> Response:
        """
        Raises:
            MissingPermission: A key asks for all projects.
        """
        if self.is_of_all and not self.caller.sees_all:
            raise MissingPermission("Only people see the trail of all projects.", needed=READ_AUDIT.permission)
        rows: QuerySet[Any] = AuditEntry.objects.all()
        if not self.is_of_all:
            rows = ProjectAuditEntry.objects.filter(project_id=self.caller.project_id)
        return self.listed(rows)
