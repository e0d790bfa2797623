"""An operator's actions on every job that the list's filters match."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from jobs.admin.forms import PacedDelayForm, PacedOptionalReasonForm, PacedPriorityForm, PacedReasonForm
from jobs.admin.matching import Matching
from jobs.models import BulkOperation
from jobs.services.operate import bulk
from jobs.services.operate.job_filter import STATES_OF, JobFilter

from . import verbs

# The parameters of the list's address, each with the field of the filter that it sets.
PARAMETERS = {
    "project": "project_id",
    "batch_id": "batch_id",
    "user_id": "user_id",
    "service": "service",
    "kind": "kind",
    "state": "state",
    "priority": "priority",
    "tags": "tags",
}


def _run_now(wanted: JobFilter, **options: Any) -> BulkOperation:
    return bulk.start_bulk_schedule(wanted, delay=timedelta(), **options)


RUN_NOW = Matching(verbs.RUN_NOW, form=PacedOptionalReasonForm, start=_run_now)
SCHEDULE = Matching(verbs.SCHEDULE, form=PacedDelayForm, start=bulk.start_bulk_schedule)
PRIORITY = Matching(verbs.PRIORITY, form=PacedPriorityForm, start=bulk.start_bulk_priority, done="gone through")
CANCEL = Matching(verbs.CANCEL, form=PacedReasonForm, start=bulk.start_bulk_cancel)
ALL_JOBS = (RUN_NOW, SCHEDULE, PRIORITY, CANCEL)
ACTION_OF = {
    verbs.RUN_NOW.name: "schedule_jobs",
    verbs.SCHEDULE.name: "schedule_jobs",
    verbs.PRIORITY.name: "change_priority",
    verbs.CANCEL.name: "cancel_jobs",
}


def states_of(action: Matching) -> frozenset[Any]:
    """Return the states of the jobs that an action changes."""
    return STATES_OF[ACTION_OF[action.verb.name]]
