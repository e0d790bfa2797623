"""The project's event log."""

from __future__ import annotations

from typing import ClassVar

from rest_framework.request import Request
from rest_framework.response import Response

from jobs.api import examples
from jobs.api.filters import EventFilterSet
from jobs.api.log_pages import LogPages
from jobs.api.serializers.events import EventSerializer
from jobs.models import JobEvent
from queueops.rest.schema import operation

from .base import READ, ApiListView


class EventList(ApiListView[JobEvent]):
    needs: ClassVar = {"GET": READ}
    serializer_class = EventSerializer
    filterset_class = EventFilterSet
    pagination_class = LogPages

    @operation(
        "List what happened in the project, newest first",
        operation_id="events_list",
        errors=[410],
        answer=EventSerializer(many=True),
        example=examples.EVENT,
    )
    def get(self, request: Request) -> Response:
        return self.listed(JobEvent.objects.filter(project_id=self.caller.project_id))
