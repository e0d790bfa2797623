"""The bodies that webhooks are made and changed with. Unknown fields are refused."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import ConfigDict, Field

from jobs.api.inputs import KindName, WithReason
from jobs.features.webhooks.models import MAX_JOBS_OF_A_MESSAGE
from jobs.features.webhooks.webhooks import MAX_OVERLAP
from queueops.core.values.moments import Moment
from queueops.core.values.tags import Tags
from queueops.core.web.requests.nul import NO_NUL
from queueops.rest.inputs import Input, as_changes

JobOutcome = Literal["completed", "failed", "cancelled"]  # the ended states of jobs/states.py


class EndedJobs(Input):
    """Jobs that fit all that is given; nothing given is every job."""

    kinds: list[KindName] = Field(default=[], description="One of these kinds.")
    tags: Tags = Field(default=(), description="All of these tags.")
    any_tag: Tags = Field(default=(), description="One of these tags, or several.")
    outcomes: list[JobOutcome] = Field(
        default=[], description="Ended so. `failed` is for good: each of them has a dead letter."
    )
    user_id: UUID | None = None
    batch_id: UUID | None = None


def _heard(figures: dict[str, Any]) -> dict[str, Any]:
    """The given values by the names of the webhook's fields; a given filter replaces the whole filter."""
    found = {name: value for name, value in figures.items() if name not in {"jobs", "batches", "reason"}}
    if "batches" in figures:
        found["hears_batches"] = figures["batches"]
    if "jobs" in figures:
        found["hears_jobs"] = figures["jobs"] is not None
        found |= figures["jobs"] or EndedJobs().model_dump()
    return found


class WebhookFigures(WithReason):
    """Where its messages go, and what they tell of."""

    enabled: bool = Field(strict=True, default=True)
    batches: bool = Field(strict=True, default=True, description="It is told that batches ended.")
    jobs: EndedJobs | None = Field(default=None, description="Which ended jobs it is told of. Null: of none.")
    most_jobs: int = Field(
        strict=True, default=100, ge=1, le=MAX_JOBS_OF_A_MESSAGE, description="Ended jobs of one message, at most."
    )


WebhookAddress = Annotated[
    str, Field(min_length=1, max_length=500, pattern=NO_NUL, description="It takes POSTs of JSON.")
]


class NewWebhook(WebhookFigures):
    url: WebhookAddress

    def figures(self) -> dict[str, Any]:
        return _heard(self.model_dump())


class ChangeWebhook(WebhookFigures):
    """Fields that are left out stay as they are."""

    model_config = ConfigDict(json_schema_extra=as_changes)

    url: WebhookAddress = ""

    def figures(self) -> dict[str, Any]:
        """The given values."""
        given = {name: value for name, value in self.model_dump().items() if name in self.model_fields_set}
        return _heard(given)


class NewSecret(WithReason):
    overlap_seconds: int = Field(
        strict=True,
        default=86_400,
        ge=0,
        le=int(MAX_OVERLAP.total_seconds()),
        description="How long messages are signed with the former secret, too. 0: it signs nothing from now on.",
    )


class SendAgain(WithReason):
    confirm: bool = Field(strict=True, default=False, description="False: only say how many messages there are.")
    since: Moment | None = Field(default=None, description="Only messages that failed for good since.")
