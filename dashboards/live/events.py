"""One event on its way from the log to its watchers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Literal

from jobs.states import JobState
from queueops.core.sealing import opened_if, shown_json, shown_text
from queueops.core.values.masking import masked, masked_text

from . import messages

# A subject that may be watched: a job, a batch, a project, a user within a project, everything.
Group = tuple[Literal["job", "batch", "project", "user", "ops"], str]

OPS: Group = ("ops", "")
MAX_FILTER_LENGTH = 100


def user_group(project_id: str, user_id: object) -> Group:
    return ("user", f"{project_id}/{user_id}")


@dataclass(frozen=True)
class Event:
    """A row of read_events.sql; ids as text, data as JSON text."""

    id: int
    job: str
    project: str
    user: str | None
    batch: str | None
    event_type: str
    from_status: str | None
    to_status: str | None
    message: str
    percent: int | None
    at: datetime
    service: str | None
    data: str | None

    def groups(self) -> Iterable[Group]:
        yield ("job", self.job)
        if self.batch is not None:
            yield ("batch", self.batch)
        yield ("project", self.project)
        if self.user is not None:
            yield user_group(self.project, self.user)
        yield OPS

    @cached_property
    def body(self) -> str:
        return self._body(message=shown_text(self.message), data=None if self.data is None else shown_json(self.data))

    @cached_property
    def masked_body(self) -> str:
        """
        The event for people: encrypted content stays closed, because sockets do not check the permission to read it.
        """
        with opened_if(lambda: False):
            data = None if self.data is None else json.dumps(masked(json.loads(shown_json(self.data))))
            return self._body(message=masked_text(shown_text(self.message)), data=data)

    @cached_property
    def outline(self) -> str:
        """The event for overviews of much work: without secrets, and without the work's content."""
        with opened_if(lambda: False):
            return self._body(message=masked_text(shown_text(self.message)), data=None)

    def _body(self, *, message: str, data: str | None) -> str:
        return messages.event_body(
            event_id=self.id,
            job=self.job,
            project=self.project,
            user=self.user,
            batch=self.batch,
            event_type=self.event_type,
            from_status=self.from_status,
            to_status=self.to_status,
            message=message,
            percent=self.percent,
            at=self.at,
            data=data,
        )


@dataclass(frozen=True, slots=True)
class EventFilter:
    """An operator's choice of what to see of the feed; None: any."""

    project: str | None = None
    service: str | None = None
    state: str | None = None

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> EventFilter:
        """
        Raises:
            ValueError: A field is unknown, a value is neither text nor null, or a state is unknown.
        """
        if given.keys() - {"project", "service", "state"}:
            raise ValueError("A filter has the fields project, service and state.")
        if not all(
            value is None or (isinstance(value, str) and len(value) <= MAX_FILTER_LENGTH) for value in given.values()
        ):
            raise ValueError("A filter's values are texts, or null.")
        if (state := given.get("state")) and state not in set(JobState):
            raise ValueError(f"The filter's state is one of: {', '.join(JobState)}.")
        return cls(**{name: value or None for name, value in given.items()})

    def lets_through(self, event: Event) -> bool:
        return (
            (self.project is None or event.project == self.project)
            and (self.service is None or event.service == self.service)
            and (self.state is None or event.to_status == self.state)
        )
