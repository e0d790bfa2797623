"""Chooses a new job's delivery: live, or by a batch of its provider at half the price. Pure but for `WayRules.read`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from django.conf import settings

from jobs.handlers.registry import Handler
from jobs.models import MAX_DEADLINE_HOURS, BatchPace, BatchPolicy, Way
from queueops.core.clock import database_moment
from queueops.core.errors import QueueOpsError
from queueops.tenancy.secrets.credentials import without_batches

from .spec import JobSpec

WINDOWS_WITHOUT_DEADLINE = 2  # the default deadline of a batch job, in windows of a batch


class BadDeadline(QueueOpsError):
    """The deadline is over, too near for a batch, or too far away."""

    code = "bad_deadline"
    status = 422


class NoBatchForm(QueueOpsError):
    """The job cannot go by a batch of its provider."""

    code = "no_batch_form"
    status = 422


class ChosenWay(NamedTuple):
    """
    Attributes:
        via: `batch`, or None: the job goes live.
        live_at: When the job goes live unless a batch has carried it out.
        has_form: The job could go by a batch, even if it goes live.
    """

    via: str | None = None
    complete_by: datetime | None = None
    live_at: datetime | None = None
    has_form: bool = False


GOES_LIVE = ChosenWay()


@dataclass(frozen=True, slots=True)
class WayRules:
    """
    The rules for the delivery of a project's jobs, as of one moment.

    Attributes:
        now: That moment, by the database's clock. If each line of a batch had a moment of its own, a slow batch would
            go live in part: its deadline leaves a minute to spare.
        policies: By kind, the default delivery, and the default deadline in seconds.
        paces: By service, the 95th percentile of its batches' durations, in seconds.
        without: The credentials and models whose servers take no batches; see `without_batches`.
    """

    now: datetime
    policies: Mapping[str, tuple[str, float | None]] = field(default_factory=dict)
    paces: Mapping[str, float] = field(default_factory=dict)
    window_seconds: float = 86_400.0
    margin_seconds: float = 1_800.0
    without: frozenset[tuple[str, str]] = frozenset()

    @classmethod
    def read(cls, project_id: str | None) -> WayRules:
        own, now = settings.QUEUEOPS, database_moment()
        policies: dict[str, tuple[str, float | None]] = {}
        for row in BatchPolicy.objects.order_by("kind"):
            if row.project_id == project_id or (row.project_id is None and row.kind not in policies):
                hours = row.complete_within_hours
                # Cap the hours: a value that was saved before there was a bound would fail every submit.
                policies[row.kind] = (row.via, None if hours is None else min(hours, MAX_DEADLINE_HOURS) * 3600.0)
        known = BatchPace.objects.exclude(p95_seconds=None).values_list("service", "p95_seconds")
        paces = {service: seconds for service, seconds in known if seconds is not None}
        without = without_batches(project_id)
        return cls(now, policies, paces, own.batch_window_seconds, own.batch_margin_seconds, without)

    def takes_none(self, credential: str, model: str) -> bool:
        """Whether the settings of a credential say that its server takes no batches of the model's calls."""
        return not self.without.isdisjoint({(credential, ""), (credential, model)})

    def batch_seconds(self, service: str) -> float:
        """Return how many seconds a batch of this service takes; the window if no pace is known."""
        return self.paces.get(service, self.window_seconds)


def choose_way(
    handler: Handler,
    payload: Any,
    spec: JobSpec,
    *,
    rules: Callable[[], WayRules],
    service: str,
    base_url: Callable[[], str],
    is_whole: bool,
    asked_of: tuple[str, str] = ("", ""),
) -> ChosenWay:
    """
    Args:
        rules: Called only for jobs that have a batch form, or name a delivery or a deadline.
        base_url: The address of the job's credential, or empty; called only for kinds that have a batch form.
        is_whole: The job names a credential and a model, and may begin at once.
        asked_of: The credential and the model that the job names.

    Raises:
        BadDeadline, NoBatchForm
    """
    if spec.via is None and spec.complete_by is None and handler.batch is None:
        return GOES_LIVE
    found, complete_by = rules(), spec.complete_by
    now = found.now
    _check_deadline(complete_by, now)
    fault = _unfit(handler, payload, spec, base_url=base_url, is_whole=is_whole)
    if not fault and found.takes_none(*asked_of):
        fault = "the server behind its credential takes no batches, as the settings of the credential say"
    if fault and spec.via == "batch":
        raise NoBatchForm(f"The job cannot go by batch: {fault}.", fields={"via": [fault]})
    if fault or spec.via == "live":
        return ChosenWay(complete_by=complete_by, has_form=not fault)
    via, within = found.policies.get(handler.kind, ("auto" if complete_by else Way.LIVE.value, None))
    if complete_by is None and via == "auto" and within is not None:
        complete_by = now + timedelta(seconds=within)
    via = spec.via or via
    if via == Way.BATCH and complete_by is None:
        complete_by = now + timedelta(seconds=WINDOWS_WITHOUT_DEADLINE * found.window_seconds)
    if via == Way.LIVE or complete_by is None:
        return ChosenWay(complete_by=complete_by, has_form=True)
    live_at = complete_by - timedelta(seconds=found.margin_seconds)
    if via == Way.BATCH and live_at <= now:
        nearest = f"must be more than {found.margin_seconds:,.0f} s away for a batch (QUEUEOPS_BATCH_MARGIN_SECONDS)"
        raise BadDeadline("The deadline is too near for a batch.", fields={"complete_by": [nearest]})
    if via == "auto" and live_at - now <= timedelta(seconds=found.batch_seconds(service)):
        return ChosenWay(complete_by=complete_by, has_form=True)
    return ChosenWay(Way.BATCH.value, complete_by, live_at, has_form=True)


def _check_deadline(complete_by: datetime | None, now: datetime) -> None:
    if complete_by is None:
        return
    if complete_by <= now:
        raise BadDeadline("The deadline is over.", fields={"complete_by": ["must be in the future"]})
    if complete_by - now > timedelta(hours=MAX_DEADLINE_HOURS):
        furthest = f"must be at most {MAX_DEADLINE_HOURS // 24} days away"
        raise BadDeadline("The deadline is too far away.", fields={"complete_by": [furthest]})


def _unfit(handler: Handler, payload: Any, spec: JobSpec, *, base_url: Callable[[], str], is_whole: bool) -> str:
    """Why the job cannot go by batch; empty: it can."""
    if handler.batch is None:
        return f"{handler.kind} has no batch form"
    if not handler.batch.api_of(payload, base_url()):
        return "its provider has no batch API for such a payload"
    if spec.scheduled_at is not None or spec.delay_seconds:
        return "it is to begin at a time of its own"
    return "" if is_whole else "it names no model, or no single credential: jobs of a pool go live"
