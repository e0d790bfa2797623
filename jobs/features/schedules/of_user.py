"""Schedules with jobs of an end user, for the erasure of the user."""

from __future__ import annotations

import json
from collections.abc import Iterator
from uuid import UUID

from django.db import transaction
from django.db.models import QuerySet

from jobs.models import Schedule, ScheduleFire
from jobs.services.upkeep.user_rows import UserRows, naming_opened


def rows_of_user(project_id: str, user_id: UUID) -> Iterator[UserRows]:
    text = str(user_id)
    own = Schedule.objects.filter(project_id=project_id)

    @transaction.atomic
    def take_out(schedules: QuerySet[Schedule]) -> int:
        """Delete schedules that have the user's jobs alone, and take the user's jobs out of other schedules."""
        count = 0
        for schedule in schedules.order_by("pk").select_for_update():
            others = [job for job in schedule.jobs if text not in json.dumps(job)]
            if others and text not in schedule.name:
                schedule.jobs = others
                schedule.save(update_fields=["jobs"])  # `update` would store the others' payloads unsealed
            else:
                schedule.delete()
            count += 1
        return count

    yield UserRows("schedules", naming_opened(own, "jobs", text) | own.filter(name__contains=text), take_out)
    refusals = ScheduleFire.objects.filter(project_id=project_id, error_message__contains=text)
    yield UserRows("refusals of schedules", refusals, {"error_message": ""})
