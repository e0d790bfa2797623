"""Makes, changes, pauses, runs and deletes schedules; fire_schedules.py submits their due jobs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any
from uuid import UUID

from django.db import transaction
from django.db.models import OuterRef, Subquery

from jobs.features.schedules.errors import BadSchedule, UnknownSchedule
from jobs.models import Schedule, ScheduleFire
from jobs.services.submit.documents.accept_document import LineChecker
from jobs.times.cron import TICK, BadTimes, Fire
from queueops.audit import trail
from queueops.core.clock import database_moment
from queueops.core.postgres.unique_names import faults_of, save_named
from queueops.core.postgres.zones import known_zone
from queueops.core.values.reasons import clean_reason

from .fire_schedules import jobs_now, submit_fire

TIMES = ("cron", "time_zone", "jitter_seconds", "ends_at")
FIGURES = ("name", *TIMES, "jobs", "missed", "most_missed")
FORESEEN_FIRES = 5
MAX_JOBS_OF_A_SCHEDULE = 1000
MAX_BYTES = 1_000_000  # of all jobs of one schedule, as JSON
# Each fire needs its own values of these fields: a stored value would suit the first fire alone.
OF_ONE_FIRE = ("scheduled_at", "expires_at", "complete_by", "idempotency_key", "after")


@transaction.atomic
def save_schedule(
    schedule_id: UUID | None, figures: Mapping[str, Any], *, project_id: str, actor: str, reason: str = ""
) -> Schedule:
    """
    Make a schedule, or change one. If its times change, the next fire is the first after now; overdue ones are skipped.

    Args:
        schedule_id: None: a new one.
        figures: The fields to set, by their names in FIGURES; the others stay as they are.
        project_id: The project that the schedule belongs to; it cannot change.

    Raises:
        BadSchedule: With the path of each bad field. Nothing was changed.
        UnknownSchedule: The project has no schedule of that id.
        ProjectMoved, ProjectMoving
    """
    schedule = Schedule(project_id=project_id) if schedule_id is None else locked(schedule_id, project_id=project_id)
    before = {name: getattr(schedule, name) for name in FIGURES}
    if "jobs" not in figures:
        schedule.jobs = jobs_now(schedule)  # otherwise newer rules could refuse even a change of the name
    for name, value in figures.items():
        setattr(schedule, name, value)
    following = check_schedule(schedule)
    new = schedule_id is None
    if new or any(before[name] != getattr(schedule, name) for name in TIMES):
        schedule.set_next(None if schedule.paused else following)
    if faults := save_named(schedule, force_insert=new):
        raise BadSchedule(fields=faults)
    _record(f"{'create' if new else 'change'}_schedule", schedule, None if new else before, actor=actor, reason=reason)
    return schedule


def check_schedule(schedule: Schedule, *, stored: bool = True) -> Fire:
    """
    Check a schedule, and return its next fire from now on.

    Args:
        stored: The schedule is to be stored, so no other may have its name.

    Raises:
        BadSchedule: With the path of each bad field.
    """
    faults = faults_of(schedule, validate_unique=stored, validate_constraints=stored)
    following = None
    if not faults.keys() & set(TIMES):
        try:
            following = schedule.times.check(database_moment())
        except BadTimes as error:
            faults[error.field] = [str(error)]
    faults |= _faults_of_jobs(schedule.jobs, schedule.project_id)
    if faults or following is None:
        raise BadSchedule(fields=faults)
    return following


def next_fires(schedule: Schedule) -> list[Fire]:
    """The next FORESEEN_FIRES; none while the schedule is paused, when it has ended, or if its time zone is unknown."""
    if schedule.next_due_at is None or known_zone(schedule.time_zone) is None:
        return []
    return list(islice(schedule.times.after(schedule.next_due_at - TICK), FORESEEN_FIRES))


def last_fires(schedule_ids: Sequence[UUID]) -> dict[UUID, ScheduleFire]:
    """The last fire of each schedule that had one."""
    # One look into the index for each schedule: DISTINCT ON would read all its fires, tens of thousands of a busy one.
    newest = ScheduleFire.objects.filter(schedule=OuterRef("pk")).order_by("-due_at").values("pk")[:1]
    ids = Schedule.objects.filter(pk__in=schedule_ids).order_by().values_list(Subquery(newest), flat=True)
    return {row.schedule_id: row for row in ScheduleFire.objects.filter(pk__in=list(ids))}


def preview_schedule(figures: Mapping[str, Any], *, project_id: str) -> list[Fire]:
    """
    When a schedule with these fields would fire next, without its jitter: that is drawn when the schedule is stored.

    Raises:
        BadSchedule
    """
    schedule = Schedule(project_id=project_id, **{"name": "preview", **figures})
    check_schedule(schedule, stored=False)
    return list(islice(schedule.times.after(database_moment()), FORESEEN_FIRES))


@transaction.atomic
def pause_schedule(schedule_id: UUID, *, project_id: str, actor: str, reason: str = "") -> Schedule:
    """Keep a schedule from firing. A paused schedule stays paused. Raises as `locked`."""
    schedule = locked(schedule_id, project_id=project_id)
    if not schedule.paused:
        schedule.paused = True
        schedule.set_next(None)
        schedule.save(update_fields=["paused", "next_due_at", "next_fire_at"])
        _record_verb("pause", schedule, actor=actor, reason=reason)
    return schedule


@transaction.atomic
def resume_schedule(schedule_id: UUID, *, project_id: str, actor: str, reason: str = "") -> Schedule:
    """
    Let a schedule fire again, from now on: fires missed during the pause are not made up for.

    Raises:
        UnknownSchedule
        BadSchedule: It would not fire any more.
    """
    schedule = locked(schedule_id, project_id=project_id)
    if schedule.paused:
        try:
            following = schedule.times.check(database_moment())
        except BadTimes as error:
            raise BadSchedule(str(error), fields={error.field: [str(error)]}) from None
        schedule.paused = False
        schedule.refused_in_a_row = 0
        schedule.set_next(following)
        schedule.save(update_fields=["paused", "refused_in_a_row", "next_due_at", "next_fire_at"])
        _record_verb("resume", schedule, actor=actor, reason=reason)
    return schedule


@transaction.atomic
def run_schedule(schedule_id: UUID, *, project_id: str, actor: str, reason: str = "") -> ScheduleFire:
    """
    Submit a schedule's jobs now, paused or not. Its next fire stays as it is.

    Raises:
        UnknownSchedule
        QueueOpsError: An error of submitting, such as QueueFull. Nothing was done.
    """
    schedule = locked(schedule_id, project_id=project_id)
    made = submit_fire(schedule, database_moment(), asked_by=actor)
    _record_verb("run", schedule, actor=actor, reason=reason)
    return made


@transaction.atomic
def delete_schedule(schedule_id: UUID, *, project_id: str, actor: str, reason: str = "") -> None:
    """
    Delete a schedule and the records of its fires. Jobs that it has submitted go on.

    Raises:
        UnknownSchedule
    """
    schedule = locked(schedule_id, project_id=project_id)
    _record(
        "delete_schedule", schedule, {name: getattr(schedule, name) for name in FIGURES}, actor=actor, reason=reason
    )
    schedule.delete()


def locked(schedule_id: UUID, *, project_id: str) -> Schedule:
    """
    Raises:
        UnknownSchedule: The project has no schedule of that id.
    """
    rows = Schedule.objects.select_for_update(of=("self",)).filter(pk=schedule_id, project_id=project_id)
    found = rows.first()
    if found is None:
        raise UnknownSchedule(schedule_id=str(schedule_id))
    return found


def _faults_of_jobs(jobs: Any, project_id: str) -> dict[str, list[str]]:
    if not isinstance(jobs, list) or not jobs or not all(isinstance(job, dict) for job in jobs):
        return {"jobs": ["Write a list of jobs, each as in its submission."]}
    if len(jobs) > MAX_JOBS_OF_A_SCHEDULE:
        return {"jobs": [f"At most {MAX_JOBS_OF_A_SCHEDULE:,} jobs."]}
    if len(json.dumps(jobs)) > MAX_BYTES:
        return {"jobs": [f"At most {MAX_BYTES:,} bytes of JSON."]}
    found: dict[str, list[str]] = {}
    checker = LineChecker(project_id, first_line=0)
    for _ in checker.with_files(checker.chunks(jobs)):
        pass
    for error in checker.errors:
        for field, messages in (error.fields or {"": [error.message]}).items():
            found[f"jobs.{error.line}.{field}".rstrip(".")] = list(messages)
    for place, job in enumerate(jobs):
        for field in OF_ONE_FIRE:
            if job.get(field) is not None:
                found[f"jobs.{place}.{field}"] = ["Each fire would have the same: leave it out."]
    return found


def _record_verb(verb: str, schedule: Schedule, *, actor: str, reason: str) -> None:
    trail.record(
        actor=actor,
        action=f"{verb}_schedule",
        target=f"schedule {schedule.pk}",
        after={"name": schedule.name},
        reason=clean_reason(reason),
        project_id=schedule.project_id,
    )


def _record(action: str, schedule: Schedule, before: Mapping[str, Any] | None, *, actor: str, reason: str) -> None:
    """The trail keeps no payload: it says how many jobs of which kinds there are, and whether they changed."""
    deleted = action == "delete_schedule"
    after = None if deleted else {name: getattr(schedule, name) for name in FIGURES}
    changed = before is not None and after is not None and before["jobs"] != after["jobs"]
    trail.record(
        actor=actor,
        action=action,
        target=f"schedule {schedule.pk}",
        before=before and _told(before),
        after=after and {**_told(after), **({"other_jobs": True} if changed else {})},
        reason=clean_reason(reason),
        project_id=schedule.project_id,
    )


def _told(figures: Mapping[str, Any]) -> dict[str, Any]:
    jobs: Sequence[Mapping[str, Any]] = figures["jobs"]
    return {**figures, "jobs": len(jobs), "kinds": sorted({str(job["kind"]) for job in jobs})}
