"""What an operator may do to every job that the list's filters match."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from jobs.models import BulkOperation
from jobs.services import bulk
from jobs.services.job_filter import STATES_OF, JobFilter

from . import job_verbs as verbs
from .forms import PacedDelayForm, PacedOptionalReasonForm, PacedPriorityForm, PacedReasonForm
from .matching import Matching

# the list's parameters, and the filter's
PARAMETERS = {
    "project": "project_id",
    "batch_id": "batch_id",
    "user_id": "user_id",
    "service": "service",
    "kind": "kind",
    "state": "state",
    "priority": "priority",
}


def _run_now(wanted: JobFilter, **options: Any) -> BulkOperation:
    return bulk.start_bulk_schedule(wanted, delay=timedelta(), **options)


RUN_NOW = Matching(
    name="run-now",
    permission=verbs.RUN_NOW.permission,
    label=verbs.RUN_NOW.label,
    done=verbs.RUN_NOW.done,
    explains=verbs.RUN_NOW.explains,
    icon=verbs.RUN_NOW.icon,
    form=PacedOptionalReasonForm,
    start=_run_now,
)
SCHEDULE = Matching(
    name="schedule",
    permission=verbs.SCHEDULE.permission,
    label=verbs.SCHEDULE.label,
    done=verbs.SCHEDULE.done,
    explains=verbs.SCHEDULE.explains,
    icon=verbs.SCHEDULE.icon,
    form=PacedDelayForm,
    start=bulk.start_bulk_schedule,
)
PRIORITY = Matching(
    name="priority",
    permission=verbs.PRIORITY.permission,
    label=verbs.PRIORITY.label,
    done="gone through",
    explains=verbs.PRIORITY.explains,
    icon=verbs.PRIORITY.icon,
    form=PacedPriorityForm,
    start=bulk.start_bulk_priority,
)
CANCEL = Matching(
    name="cancel",
    permission=verbs.CANCEL.permission,
    label=verbs.CANCEL.label,
    done=verbs.CANCEL.done,
    explains=verbs.CANCEL.explains,
    icon=verbs.CANCEL.icon,
    form=PacedReasonForm,
    start=bulk.start_bulk_cancel,
    overrides=True,
)
ALL_JOBS = (RUN_NOW, SCHEDULE, PRIORITY, CANCEL)
ACTION_OF = {
    RUN_NOW.name: "schedule_jobs",
    SCHEDULE.name: "schedule_jobs",
    PRIORITY.name: "change_priority",
    CANCEL.name: "cancel_jobs",
}


def states_of(action: Matching) -> frozenset[Any]:
    """Of which states the jobs are that the action does something to."""
    return STATES_OF[ACTION_OF[action.name]]
