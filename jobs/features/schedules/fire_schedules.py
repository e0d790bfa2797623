"""Submits the due jobs of schedules. Jobs and the row's advance are one transaction, so each fire is made once."""

from __future__ import annotations

import logging
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from django.db import InterfaceError, OperationalError, transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from jobs.models import PauseSwitch, Schedule, ScheduleFire
from jobs.services.submit.spec import as_written_now, parse_spec
from jobs.services.submit.submit import submit_batch, submit_job
from jobs.services.upkeep.executors import take_duty
from jobs.services.upkeep.retention import RetentionRule, in_order
from queueops.core.clock import Now, database_moment
from queueops.core.errors import QueueOpsError
from queueops.core.processes.isolate_failures import one_by_one
from queueops.core.sealing import WITHHELD
from queueops.core.values.masking import masked_text
from queueops.tenancy.secrets.encryption import CannotRead, is_encrypted

logger = logging.getLogger(__name__)

FIRED_AT_ONCE = 200
FIRING_SECONDS = 1.0
DUTY_TERM_SECONDS = 3.0
OTHERS_AFTER = timedelta(seconds=10)
FIRE_RESTS_SECONDS = 60.0  # after a fire that cannot be made here
MAX_FIRE_MESSAGE = 500
Outcome = ScheduleFire.Outcome
FIRES = RetentionRule(
    "fires of schedules", "retention_days", *in_order(lambda _: ScheduleFire.objects.all(), "created_at")
)


class ScheduleRounds:
    """
    Fires due schedules, under a duty of its own because this may take FIRING_SECONDS.

    The holder may be the one host that knows a schedule's time zone or key no more. Fires that are OTHERS_AFTER late
    are therefore made by any housekeeper. Each rests a schedule that failed here, or it would crowd out others.
    """

    def __init__(self, executor: UUID, _: object = None) -> None:
        self._executor = executor
        self._resting: dict[UUID, float] = {}

    def do(self, now: float) -> None:
        self._resting = {pk: until for pk, until in self._resting.items() if until > now}
        if not due_schedules(Now()).exists():
            return
        has_duty = take_duty("schedules", holder=self._executor, term_seconds=DUTY_TERM_SECONDS)
        left = set(self._resting)
        fire_schedules(late=timedelta() if has_duty else OTHERS_AFTER, left=left)
        self._resting |= dict.fromkeys(left - self._resting.keys(), now + FIRE_RESTS_SECONDS)

    def stop(self) -> None:
        """Do nothing: no round leaves anything running."""


def fire_schedules(*, at: datetime | None = None, late: timedelta = timedelta(), left: set[UUID] | None = None) -> int:
    """
    Submit the jobs of due schedules.

    Schedules of paused projects are skipped, and all schedules while everything is paused. Each schedule's policy says
    what becomes of fires that were missed meanwhile.

    Two processes at once make no fire twice: each skips the rows that the other has locked.

    Args:
        at: None: now, by the database's clock.
        late: Fire only what is late by so much.
        left: Schedules to leave alone; those whose fire cannot be made here are added.

    Returns:
        How many fires were made, refused or left out. Fires left after FIRING_SECONDS are for the next call.
    """
    now = at or database_moment()
    until = time.monotonic() + FIRING_SECONDS
    made: list[UUID] = []

    def fire(schedule_id: UUID) -> None:
        while time.monotonic() < until and _fire_next(schedule_id, now):
            made.append(schedule_id)

    left = set() if left is None else left
    due = due_schedules(now - late).exclude(pk__in=left).values_list("pk", flat=True)[:FIRED_AT_ONCE]
    left.update(one_by_one(list(due), fire, what="the schedule"))
    return len(made)


def submit_fire(schedule: Schedule, due_at: datetime, *, asked_by: str = "", left_out: int = 0) -> ScheduleFire:
    """
    Submit a schedule's jobs and note the fire, in the caller's transaction. Each job's idempotency key belongs to this
    fire alone.

    Raises:
        CannotRead: Its jobs are encrypted with a key that is not set here.
        QueueOpsError: An error of submitting.
    """
    if isinstance(schedule.jobs, str):  # a text stands in for them
        raise CannotRead
    key = f"schedule:{schedule.pk}:{due_at.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%f}"
    project, actor = schedule.project_id, schedule.actor
    job_id = batch_id = None
    jobs = jobs_now(schedule)
    if len(jobs) == 1:
        spec = parse_spec({**jobs[0], "idempotency_key": key})
        job_id = submit_job(spec, project_id=project, actor=actor).id
    else:
        lines = ({**job, "idempotency_key": f"{key}:{place}"} for place, job in enumerate(jobs))
        batch_id = submit_batch(lines, name=schedule.name, project_id=project, actor=actor).id
    told = {"job_id": job_id, "batch_id": batch_id, "asked_by": asked_by, "left_out": left_out}
    return _note(schedule, due_at, outcome=Outcome.SUBMITTED, **told)


def jobs_now(schedule: Schedule) -> Any:
    """A schedule's jobs in this release's form, whatever release stored them."""
    stored = schedule.jobs
    return [as_written_now(job) for job in stored] if isinstance(stored, list) else stored


def due_schedules(now: datetime | Now) -> QuerySet[Schedule]:
    """Schedules whose fire is due, without those that a pause of their project or of everything keeps."""
    paused = PauseSwitch.objects.filter(Q(scope="global") | Q(scope="project", key=OuterRef("project_id")))
    return Schedule.objects.filter(~Exists(paused), next_fire_at__lte=now).order_by("next_fire_at")


@transaction.atomic
def _fire_next(schedule_id: UUID, now: datetime) -> bool:
    """Make one fire, the oldest that is due. Return False if no fire was due: none was made, and none left out."""
    schedule = due_schedules(now).select_for_update(skip_locked=True, of=("self",)).filter(pk=schedule_id).first()
    if schedule is None or schedule.next_due_at is None:
        return False
    due = schedule.times.due(since=schedule.next_due_at, now=now, missed=schedule.missed, most=schedule.most_missed)
    following = due.fires[1] if len(due.fires) > 1 else due.following
    due_at = due.fires[0].due_at if due.fires else due.last_due_at
    if due_at is not None and schedule.fires.filter(due_at=due_at).exists():
        logger.warning("schedule %s: its fire of %s is made already; it is passed over", schedule_id, due_at)
    elif due.fires:
        _try(schedule, due.fires[0].due_at, due.left_out)
    elif due_at is not None:
        _note(schedule, due_at, outcome=Outcome.SKIPPED, left_out=due.left_out)
    schedule.set_next(following)
    schedule.save(update_fields=["next_due_at", "next_fire_at", "refused_in_a_row"])
    return True


def _try(schedule: Schedule, due_at: datetime, left_out: int) -> None:
    """
    Submit one fire. A refused fire is noted and not tried again; the next fire is a new try.

    A row that the database refuses is a refusal, too: it would be refused each second, for ever.
    """
    try:
        with transaction.atomic():
            submit_fire(schedule, due_at, left_out=left_out)
    except (OperationalError, InterfaceError, CannotRead):
        raise
    except Exception as error:
        if not isinstance(error, QueueOpsError):  # raised by a handler's own code, or by the database
            logger.exception("schedule %s could not be submitted", schedule.pk)
        code, message = _told(error)
        if is_encrypted(schedule.project_id):
            message = WITHHELD
        schedule.refused_in_a_row += 1
        told = {"error_code": code, "error_message": masked_text(message)[:MAX_FIRE_MESSAGE]}
        _note(schedule, due_at, outcome=Outcome.REFUSED, left_out=left_out, **told)
    else:
        schedule.refused_in_a_row = 0


def _told(error: Exception) -> tuple[str, str]:
    if not isinstance(error, QueueOpsError):
        return "internal_error", f"{type(error).__name__}; the workers' log has the rest"
    errors = error.details.get("errors") or []
    return error.code, "; ".join([error.message, *(one["message"] for one in errors[:1])])


def _note(schedule: Schedule, due_at: datetime, **told: Any) -> ScheduleFire:
    return ScheduleFire.objects.create(schedule=schedule, project_id=schedule.project_id, due_at=due_at, **told)
