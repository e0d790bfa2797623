"""The bodies that schedules are made and changed with. Unknown fields are refused."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from jobs.api.inputs import WithReason
from jobs.features.schedules.schedules import MAX_JOBS_OF_A_SCHEDULE
from jobs.times.cron import MAX_CRON_LENGTH, MAX_JITTER_SECONDS, MAX_MISSED_FIRES, Missed
from queueops.core.values.moments import MomentInUTC
from queueops.core.web.requests.nul import NO_NUL
from queueops.rest.inputs import as_changes

CRON = "Minute, hour, day of the month, month, day of the week, read as Debian's cron reads them."


class ScheduleFigures(WithReason):
    """When it fires, and what it submits then."""

    time_zone: str = Field(default="UTC", max_length=64, description="Whose clock it goes by, as `Europe/Berlin`.")
    missed: Missed = Field(
        default=Missed.ONCE,
        description="What becomes of fires that are more than a minute late, because no worker ran or the project was "
        "paused: skip, once (one for all of them) or all (each, the newest `most_missed`).",
    )
    most_missed: int = Field(default=10, ge=1, le=MAX_MISSED_FIRES)
    jitter_seconds: int = Field(
        default=0, ge=0, le=MAX_JITTER_SECONDS, description="Each fire is late by less than that."
    )
    ends_at: MomentInUTC | None = Field(default=None, description="It does not fire later.")

    def figures(self) -> dict[str, Any]:
        """The given values, by the names of the schedule's fields."""
        return self.model_dump(exclude_unset=True, exclude={"reason"})


Cron = Annotated[str, Field(max_length=MAX_CRON_LENGTH, description=CRON, examples=["30 2 * * MON-FRI"])]
Jobs = Annotated[
    list[dict[str, Any]],
    Field(
        min_length=1,
        max_length=MAX_JOBS_OF_A_SCHEDULE,
        description="Each as in the submission of one job, without times of its own and idempotency_key. One is "
        "submitted as a job, several as a batch of the schedule's name.",
    ),
]
ScheduleName = Annotated[
    str, Field(min_length=1, max_length=100, pattern=NO_NUL, description="Of its own in the project.")
]


class NewSchedule(ScheduleFigures):
    name: ScheduleName
    cron: Cron
    jobs: Jobs


class ChangeSchedule(ScheduleFigures):
    """Fields that are left out stay as they are."""

    model_config = ConfigDict(json_schema_extra=as_changes)

    name: ScheduleName = ""
    cron: Cron = ""
    jobs: Jobs = []
