"""
Moving a project to another installation: pause, copy, verify, switch.

One transaction in the other database writes all rows. It commits once this database has committed that the project
lives in the other one. Thus a move that is stopped earlier leaves nothing behind, and two installations never carry out
the same jobs. If the move is cut off between the two commits, the project runs nowhere. The same command then finishes
the move: the rows here are unchanged, because nothing changes a project that has moved.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import psycopg
from django.conf import settings
from django.db import Error, connection, transaction
from django.db.models import Subquery
from django.db.models.functions import Coalesce
from django.utils import timezone

from jobs.features.flow import flow
from jobs.models import Batch, FlowCursor, Job, JobEvent, PauseSwitch, Webhook
from jobs.services.operate.pauses import pause_scope
from queueops.audit import trail
from queueops.audit.models import AuditEntry
from queueops.core.database import PATIENCE, connect_directly
from queueops.core.notify import Channel, notify
from queueops.core.postgres.conditions import NOT_MIGRATED, in_a_line, is_not_migrated
from queueops.core.secret_key import development_credential_key
from queueops.tenancy.models import Project, ProjectMove
from ratelimits.models import UsageEvent, UsageReservation

from .checks import check_installations, check_project, cipher_of, epoch_of, is_there, unserved_there
from .copying import (
    Ciphers,
    Cursor,
    MoveError,
    Say,
    copy_project,
    count_rows,
    count_stored,
    look_at_watched,
    make_parts,
)

ACTOR = "system:move_project"
REASON = "It moves to another installation."
LOOK_EVERY = 0.2  # seconds
SAID_EVERY = 5.0
OPEN_SINCE = """
SELECT count(*) FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend'
   AND xact_start < %s AND state <> 'idle'
"""
PAUSED_BY_HAND = """
INSERT INTO jobs_pauseswitch (scope, key, reason, paused_by, created_at) VALUES ('project', %s, %s, %s, %s)
"""
AUDITED = """
INSERT INTO jobs_auditentry (project_id, actor, action, target, after, moved, reason, address)
VALUES (%s, %s, 'move_project', %s, %s, %s, '', '')
"""


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    Attributes:
        rows: How many rows of each sort were moved, or would be moved.
        stored, stored_bytes: Jobs whose results are in the result store, and the size of these results.
        finished: An earlier call had moved the project; this call had nothing to do.
        unserved: Why the other installation cannot carry out the project's jobs, in a sentence; empty if it can.
    """

    rows: dict[str, int]
    stored: int = 0
    stored_bytes: int = 0
    finished: bool = False
    unserved: str = ""


def plan_move(project_id: str, *, url: str) -> Outcome:
    """Check all that `move_project` checks, and count the rows; change nothing. Raises MoveError."""
    with _both(url) as (here, there):
        project = _project(project_id)
        check_installations(here, there)
        if is_there(project, there):
            return Outcome({}, finished=True)
        check_project(project, here, there, _ciphers())
        stored = count_stored(here, project_id)
        return Outcome(count_rows(here, project_id), *stored, unserved=unserved_there(here, there, project_id))


def move_project(project_id: str, *, url: str, address: str, wait_seconds: float, say: Say) -> Outcome:
    """
    Move a project to the installation of another database.

    If a call was cut off, call it again: it finishes the move, or begins anew.

    Args:
        address: The other installation's address, which callers are told; may be empty.
        wait_seconds: How long running jobs, and requests under way, may take to end.

    Raises:
        MoveError: The project cannot be moved, has moved to another installation already, or the move was cut off. A
            project that cannot be moved goes on here. After a cut, repeat the call or abort the move.
    """
    with _both(url) as (here, there):
        project = _project(project_id)
        check_installations(here, there)
        if is_there(project, there):
            return Outcome({}, finished=True)
        unserved = unserved_there(here, there, project_id)
        ciphers, target = _ciphers(), epoch_of(there)
        check_project(project, here, there, ciphers)
        if project.move == ProjectMove.MOVED and project.move_target != target:
            raise MoveError(f"{project_id} has moved to another installation than this one.")
        begun = project.move == ProjectMove.MOVED or _begin(project_id, target)
        try:
            _wait_until_still(project_id, here, wait_seconds, say)
            make_parts(project_id, here=here, there=there)
            with there.connection.transaction():
                with here.connection.transaction():
                    here.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
                    [(moment,)] = here.execute("SELECT clock_timestamp()").fetchall()
                    seen = look_at_watched(here, project_id)
                    rows = copy_project(project_id, here=here, there=there, ciphers=ciphers, say=say)
                    stored, stored_bytes = count_stored(here, project_id)
                _keep_pause_by_hand(project_id, there)
                there.execute(
                    AUDITED, [project_id, ACTOR, f"project {project_id}", json.dumps(rows), sum(rows.values())]
                )
                there.execute("SELECT pg_notify(%s, '')", [Channel.READY.value])
                say("switching ...")
                begun = False  # from here on an error no longer undoes the move: this side may have committed
                if project.move != ProjectMove.MOVED:
                    try:
                        _switch(project_id, address, moment, seen=seen, rows=rows)
                    except MoveError:
                        begun = True
                        raise
        except BaseException:
            if begun and project.move != ProjectMove.MOVED:
                abort_move(project_id)
            raise
    return Outcome(rows, stored, stored_bytes, unserved=unserved)


def abort_move(project_id: str, *, url: str = "") -> bool:
    """
    Let a project whose move was cut off go on here.

    Args:
        url: The other database's URL. It is needed if the project counts as moved here, to check that it is not there.

    Returns:
        Whether there was a move.

    Raises:
        MoveError: The project has moved, this cannot be checked, or there is no such project.
    """
    project = _project(project_id)
    if project.move == ProjectMove.MOVED:
        with _both(url) as (here, there):
            check_installations(here, there)
            if project.move_target != epoch_of(there):
                raise MoveError(f"{project_id} has moved to another installation than that of --to.")
            if is_there(project, there):
                raise MoveError(f"{project_id} has moved, and is there.")
    with transaction.atomic(durable=True):
        undone = Project.objects.filter(pk=project_id).exclude(move=ProjectMove.NONE)
        if not undone.update(move=ProjectMove.NONE, move_target="", moved_to=""):
            return False
        PauseSwitch.objects.filter(scope=PauseSwitch.Scope.PROJECT, key=project_id, paused_by=ACTOR).delete()
        trail.record(actor=ACTOR, action="abort_move", target=f"project {project_id}", project_id=project_id)
        notify(Channel.READY)
    return True


def _begin(project_id: str, target: str) -> bool:
    with transaction.atomic(durable=True):
        Project.objects.filter(pk=project_id).update(move=ProjectMove.MOVING, move_target=target)
        trail.record(actor=ACTOR, action="begin_move", target=f"project {project_id}", project_id=project_id)
    pause_scope(PauseSwitch.Scope.PROJECT, project_id, actor=ACTOR, reason=REASON)
    return True


def _wait_until_still(project_id: str, here: Cursor, wait_seconds: float, say: Say) -> None:
    """Wait until nothing of the project runs, and requests that began before it was closed have ended."""
    [(closed,)] = here.execute("SELECT clock_timestamp()").fetchall()
    until, told = time.monotonic() + wait_seconds, time.monotonic() - SAID_EVERY
    while True:
        running = Job.objects.filter(project_id=project_id, lease_expires_at__isnull=False).count()
        [(requests,)] = here.execute(OPEN_SINCE, [closed]).fetchall()
        if not running and not requests and _all_is_noted(project_id):
            return
        words = f"{running:,} jobs are running and {requests:,} transactions are open from before"
        if time.monotonic() > until:
            if not running and not requests:
                words = "webhooks do not know of all jobs that ended"
            raise MoveError(f"{words}, after {wait_seconds:g} s. Nothing was moved; --wait gives them longer.")
        if time.monotonic() - told > SAID_EVERY:
            told = time.monotonic()
            say(f"waiting: {words} ...")
        time.sleep(LOOK_EVERY)


def _all_is_noted(project_id: str) -> bool:
    """
    Whether all ended jobs are noted for the project's webhooks. The other installation notes no job that ended before
    the move: its webhooks tell only of jobs that end from then on, and of those that were noted here.
    """
    if not Webhook.objects.filter(project=project_id, enabled=True, hears_jobs=True).exists():
        return True
    upto = FlowCursor.objects.filter(pk=flow.EVENT_LOG).values("counted")
    if not JobEvent.objects.filter(project_id=project_id, id__gt=Coalesce(Subquery(upto), 0)).exists():
        return True
    flow.sum_up()
    return False


def _switch(project_id: str, address: str, moment: datetime, *, seen: dict[str, Any], rows: dict[str, int]) -> None:
    """Mark the project as moved, unless something came in or was changed since `moment`, when the copy began."""
    with transaction.atomic(durable=True), _told_before_the_commit():
        _look_for_changes(project_id, seen, lock=True)
        # This waits for transactions that changed the project: the audit trail makes them hold its row
        # (hold_projects.sql).
        Project.objects.select_for_update().get(pk=project_id)
        since = {"project_id": project_id, "created_at__gt": moment}
        came = {
            "jobs": Job.objects.filter(**since).count(),
            "batches": Batch.objects.filter(**since).count(),
            "usage events": UsageEvent.objects.filter(**since).count(),
            "reservations": UsageReservation.objects.filter(**since).count(),
            "started jobs": Job.objects.filter(project_id=project_id, started_at__gt=moment).count(),
            "cancelled jobs": Job.objects.filter(
                project_id=project_id, status="cancelled", finished_at__gt=moment
            ).count(),
            "changes by people": AuditEntry.objects.filter(**since, moved__gt=0).count(),
        }
        if not PauseSwitch.objects.filter(scope=PauseSwitch.Scope.PROJECT, key=project_id, window=None).exists():
            raise MoveError(f"Somebody resumed {project_id} as its move began. Nothing was moved; try again.")
        if words := ", ".join(f"{count:,} {name}" for name, count in came.items() if count):
            raise MoveError(
                f"Something was written while {project_id} was copied: {words}. Nothing was moved; try again."
            )
        _look_for_changes(project_id, seen)
        Project.objects.filter(pk=project_id).update(move=ProjectMove.MOVED, moved_to=address)
        trail.record(
            actor=ACTOR,
            action="move_project",
            target=f"project {project_id}",
            after={"address": address, "at": timezone.now(), "rows": rows},
            moved=sum(rows.values()),
            project_id=project_id,
        )


def _look_for_changes(project_id: str, seen: dict[str, Any], *, lock: bool = False) -> None:
    with connection.connection.cursor() as cursor:
        found = look_at_watched(cursor, project_id, lock=lock)
    if words := ", ".join(name for name in seen if found[name] != seen[name]):
        raise MoveError(f"Somebody changed while {project_id} was copied: {words}. Nothing was moved; try again.")


@contextmanager
def _told_before_the_commit() -> Iterator[None]:
    """
    Turn an error of the database before the commit, such as a deadlock with somebody's change, into a MoveError that
    says that nothing was moved.
    """
    try:
        yield
    except (psycopg.Error, Error) as error:
        raise MoveError(f"{' '.join(str(error).split())}. Nothing was moved; try again.") from error


def _keep_pause_by_hand(project_id: str, there: Cursor) -> None:
    """Copy a pause that somebody set before the move to the other installation."""
    for switch in PauseSwitch.objects.filter(scope=PauseSwitch.Scope.PROJECT, key=project_id, window=None).exclude(
        paused_by=ACTOR
    ):
        there.execute(PAUSED_BY_HAND, [project_id, switch.reason, switch.paused_by, switch.created_at])


def _project(project_id: str) -> Project:
    project = Project.objects.filter(pk=project_id).first()
    if project is None:
        raise MoveError(f"There is no project {project_id} here.")
    return project


def _ciphers() -> Ciphers:
    config = settings.QUEUEOPS
    ours = config.credential_keys or ((development_credential_key(config.data_dir),) if config.debug else ())
    return Ciphers(cipher_of(ours), cipher_of(config.target_credential_keys))


def _connect_here(options: dict[str, Any]) -> psycopg.Connection:
    try:
        return connect_directly(**options)
    except (psycopg.Error, Error) as error:
        raise MoveError(f"The database here does not answer: {in_a_line(error)}") from None


@contextmanager
def _both(url: str) -> Iterator[tuple[Cursor, Cursor]]:
    """Open a cursor in each database, on direct connections that see all rows. Database errors become MoveError."""
    options: dict[str, Any] = {"application_name": "queueops move"}
    try:
        there = psycopg.connect(url, **{**PATIENCE, **options}, autocommit=True)
    except psycopg.Error as error:
        raise MoveError(f"The other database does not answer: {' '.join(str(error).split())}") from None
    with closing(there), closing(_connect_here(options)) as here:
        try:
            yield here.cursor(), there.cursor()
        except (psycopg.Error, Error) as error:
            if is_not_migrated(error):
                raise MoveError(NOT_MIGRATED) from error
            raise MoveError(f"It was cut off: {in_a_line(error)}. Repeat the command, or --abort.") from error
