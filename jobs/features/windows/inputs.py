"""The bodies that maintenance windows are made and changed with. Unknown fields are refused."""

from __future__ import annotations

from datetime import time
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from jobs.api.inputs import Reason
from queueops.core.values.moments import MomentInUTC
from queueops.rest.inputs import Input, as_changes

Weekday = Annotated[int, Field(ge=0, le=6)]


class WindowFigures(Input):
    begins_at: MomentInUTC | None = Field(default=None, description="Once: from then.")
    ends_at: MomentInUTC | None = Field(default=None, description="Once: until then.")
    weekdays: list[Weekday] = Field(
        default=[], max_length=7, description="Weekly: the days on which it begins; 0 is Monday."
    )
    since: time | None = Field(default=None, description="Weekly: what the clock shows when it begins.")
    until: time | None = Field(
        default=None, description="Weekly: it ends at the next such time. The same as `since`: a whole day."
    )
    time_zone: str = Field(default="UTC", max_length=64, description="Weekly: whose clock, as `Europe/Berlin`.")
    reason: Reason = Field(default="", description="Shown wherever work waits for it.")


class NewWindow(WindowFigures):
    """Once, or every week."""


class ChangeWindow(WindowFigures):
    """Fields that are left out stay as they are."""

    model_config = ConfigDict(json_schema_extra=as_changes)

    def figures(self) -> dict[str, Any]:
        return self.model_dump(include=self.model_fields_set)
