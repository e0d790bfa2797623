"""
Erases one end user of a project, so that the erasure can be shown.

Data that the user gave or got is deleted. Counts stay under a pseudonym, which nobody can trace back to the user: it is
drawn for each erasure and not computed from the user's id.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from uuid import UUID

from django.contrib.admin.models import LogEntry
from django.db import connection, transaction
from django.db.models import Q, QuerySet

from jobs.door.files import files_naming
from jobs.door.models import DoorBatch, DoorFile
from jobs.features import FEATURES
from jobs.features.archive.archive import Say, on_archive_duty
from jobs.features.results.garbage_collect import objects_of, remove_objects, remove_unnamed
from jobs.features.results.store import result_store
from jobs.models import (
    Batch,
    BulkOperation,
    Job,
    PauseSwitch,
    RefusedCalls,
    ServiceBreaker,
    Tag,
    WebhookDelivery,
)
from jobs.services.operate.job_actions import carry_out_cancel
from jobs.services.upkeep.partitions import EVENTS
from jobs.services.upkeep.retention import is_archived
from jobs.services.upkeep.user_rows import PSEUDONYM, RowsOfUser, UserRows, naming, naming_opened
from queueops.audit import trail
from queueops.core.errors import QueueOpsError
from queueops.core.sql import run_sql
from queueops.core.stores.store import Store, StoreError
from queueops.tenancy.models import Project, UserLabel
from ratelimits.models import (
    AllowanceOverride,
    Budget,
    BudgetHold,
    BudgetPeriod,
    Charge,
    Counter,
    CounterFeedback,
    LimitOverride,
    QuotaAlert,
    Spend,
    UsageEvent,
    UsageReservation,
    UsageTracking,
)
from ratelimits.money.holds import lose_holds

from .archived_files import delete_answers, erase_from_archive
from .proof import UntouchedEntry, entries_naming

ERASED_AT_ONCE = 500
ERASED = "erased"
STAYS = (
    "Usage by month, and how many jobs ended how: counted under a name drawn for this, which leads nowhere.",
    (
        "Entries of the audit trail that name the user anywhere, in what was before and after, too: the trail is "
        "append-only, holds no payload, and goes by the month (QUEUEOPS_AUDIT_RETENTION_DAYS). What a collector has "
        "of it is the collector's."
    ),
    "Answers of POST /ratelimits/decide, which name no user: they go after a day.",
    "Backups, and the write-ahead log, from before this: they go as you rotate them. Repeat this after a restore.",
    "What the called providers, the project's own app and outgoing e-mail have.",
)


class UserHasWork(QueueOpsError):
    """Jobs of the user have not ended."""

    code = "user_has_work"
    status = 409


class ErasureIncomplete(QueueOpsError):
    """Something of the user is left, or cannot be reached."""

    code = "erasure_incomplete"
    status = 500


@dataclass(frozen=True, slots=True)
class Erasure:
    """
    Attributes:
        rows: How many rows were erased, by what they were.
        pseudonym: The user id that counted rows have now.
        untouched: Entries of the audit trail that name the user, and stay.
    """

    rows: Mapping[str, int]
    pseudonym: UUID
    untouched: Sequence[UntouchedEntry]


def count_user(project_id: str, user_id: UUID) -> dict[str, int]:
    """How many rows there are of the user, by what they are. Raises ErasureIncomplete: there is no such project."""
    if not Project.objects.filter(pk=project_id).exists():
        raise ErasureIncomplete(f"There is no project {project_id}.")
    found = {"jobs": _jobs(project_id, user_id).count(), "batches": _batches(project_id, user_id).count()}
    return found | {name: rows.count() for name, rows, _ in _rows(project_id, user_id)}


def erase_user(
    project_id: str, user_id: UUID, *, store: Store | None, cancel: bool, actor: str, reason: str, say: Say
) -> Erasure:
    """
    Erase a user; if a call is cut off, the next call goes on.

    Args:
        store: The archive, where there is one.
        cancel: First cancel the jobs that have not ended.

    Raises:
        UserHasWork: Some jobs have not ended; nothing was erased.
        ErasureIncomplete: Something is left: the user's app still submits, or the archive cannot be reached.
        SealedAway: A row is encrypted with a key that is not set here.
    """
    count_user(project_id, user_id)
    if store is None and is_archived():
        raise ErasureIncomplete("There is an archive, and it may hold this user: name it, or set QUEUEOPS_ARCHIVE_DIR.")
    _end_work(project_id, user_id, cancel=cancel, actor=actor)
    pseudonym = uuid.uuid4()
    done = {"stored answers": delete_answers(project_id, user_id)}
    with on_archive_duty() if store else nullcontext() as duty:  # otherwise a job could be archived after the search
        if store and duty:
            done |= erase_from_archive(store, project_id, user_id, pseudonym, duty=duty, say=say)
        unreached: list[str] = []
        done |= _erase_jobs(project_id, user_id, pseudonym, say=say, unreached=unreached)
        done["stored results"] += _remove_unnamed(project_id, unreached)
        done["events"] += _erase_events(project_id, user_id)
        done |= _erase_rows(project_id, user_id, pseudonym)
    if left := {name: count for name, count in count_user(project_id, user_id).items() if count}:
        words = ", ".join(f"{count:,} {name}" for name, count in left.items())
        raise ErasureIncomplete(f"New rows of the user have come: {words}. Stop what submits them, then repeat this.")
    if unreached:
        raise ErasureIncomplete(
            f"Large results of the user are in the result store still; the hourly sweep removes them after a day. "
            f"{unreached[0]}"
        )
    trail.record(
        actor=actor,
        action="erase_user",
        target=f"user {pseudonym}",  # the id itself would stay for as long as the trail
        after=done,
        moved=sum(done.values()),
        reason=reason,
        project_id=project_id,
    )
    return Erasure(done, pseudonym, entries_naming(user_id))


def _jobs(project_id: str, user_id: UUID) -> QuerySet[Job]:
    """The user's jobs, and the jobs that send webhook messages about the user's batches."""
    told = WebhookDelivery.objects.filter(batch__in=_batches(project_id, user_id))
    # Two queries, each with an index.
    return Job.objects.filter(project_id=project_id, user_id=user_id) | Job.objects.filter(
        project_id=project_id, pk__in=list(told.values_list("job_id", flat=True))
    ).exclude(payload={})


def _batches(project_id: str, user_id: UUID) -> QuerySet[Batch]:
    return Batch.objects.filter(project_id=project_id, user_id=user_id)


def _end_work(project_id: str, user_id: UUID, *, cancel: bool, actor: str) -> None:
    unfinished = _jobs(project_id, user_id).filter(finished_at=None).order_by("pk")
    count = unfinished.count()
    if count and not cancel:
        raise UserHasWork(f"{count:,} jobs of this user have not ended. Let them end, or cancel them: --cancel.")
    while ids := list(unfinished.values_list("pk", flat=True)[:ERASED_AT_ONCE]):
        with transaction.atomic():
            carry_out_cancel(ids, actor=actor, reason="its user is erased")


def _erase_jobs(project_id: str, user_id: UUID, pseudonym: UUID, *, say: Say, unreached: list[str]) -> dict[str, int]:
    """Erase the user's ended jobs. `unreached` gets the reasons why objects could not be removed."""
    done = {"jobs": 0, "events": 0, "dead letters": 0, "stored results": 0}
    ended = _jobs(project_id, user_id).filter(finished_at__isnull=False).order_by("pk")
    while ids := list(ended.values_list("pk", flat=True)[:ERASED_AT_ONCE]):
        objects = objects_of(project_id, ids)
        rows = run_sql("jobs", "erase_jobs", {"ids": ids, "project": project_id, "user": pseudonym})
        try:
            done["stored results"] += _remove(objects)
        except (StoreError, OSError) as error:
            unreached.append(str(error))
        done["jobs"] += len(rows)
        done["events"] += sum(row[1] for row in rows)
        done["dead letters"] += sum(row[2] for row in rows)
        say(f"{done['jobs']:,} jobs erased ...")
        if not rows:
            break
    return done


def _remove(objects: Sequence[str]) -> int:
    """Remove the objects of rows whose erasure is committed. Raises StoreError, OSError."""
    if not objects:
        return 0
    store = result_store()
    if store is None:
        raise StoreError("QUEUEOPS_RESULT_STORE is not set here.")
    return remove_objects(store, objects)


def _remove_unnamed(project_id: str, unreached: list[str]) -> int:
    """Remove results of jobs that were deleted or archived before: no row tells any more which user they are of."""
    try:
        store = result_store()
        return remove_unnamed(store, project_id) if store is not None else 0
    except (StoreError, OSError) as error:
        unreached.append(str(error))
        return 0


def _erase_events(project_id: str, user_id: UUID) -> int:
    """Delete the user's remaining events, of deleted jobs, one partition after the other: no index has the user."""
    count = 0
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = %s::regclass", [EVENTS.table]
        )
        for (part,) in cursor.fetchall():
            statement = f"DELETE FROM {part} WHERE project_id = %s AND user_id = %s"  # noqa: S608
            cursor.execute(statement, [project_id, user_id])
            count += cursor.rowcount
    return count


def _erase_rows(project_id: str, user_id: UUID, pseudonym: UUID) -> dict[str, int]:
    # Count what budgets hold for the user's running calls as spent; the spend gets the pseudonym below. Otherwise the
    # project's budgets would hold that money for ever.
    holds = BudgetHold.objects.filter(project_id=project_id, user_id=user_id, lost=False)
    lose_holds(list(holds.order_by().values_list("job_id", "token").distinct()))
    # This reads files, which takes long: do it before budgets are locked, or calls that need the budgets would wait.
    found = list(_rows(project_id, user_id))
    done = {one.name: one.becomes(one.rows) for one in found if callable(one.becomes)}
    with transaction.atomic():
        _lock_budgets(project_id, user_id)
        for name, rows, becomes in found:
            if becomes is None:
                done[name] = rows.delete()[0]
            elif not callable(becomes):
                own = {key: pseudonym if value is PSEUDONYM else value for key, value in becomes.items()}
                done[name] = rows.update(**own)
        batches = _batches(project_id, user_id)
        Tag.objects.filter(owner_id__in=batches.values("pk")).delete()
        done["batches"] = batches.update(user_id=pseudonym, name="", submitted_by=ERASED)
        # The last error of an outage may come from a call of this user.
        ServiceBreaker.objects.filter(project_id=project_id).exclude(last_error="").update(last_error="")
        refused = RefusedCalls.objects.filter(project_id=project_id)
        PauseSwitch.objects.filter(scope=PauseSwitch.Scope.REFUSED, key__in=refused.values("name")).update(reason="")
        refused.update(last_error="")
    return done


def _lock_budgets(project_id: str, user_id: UUID) -> None:
    """Lock budgets in the common order: see ratelimits/money/holds.py."""
    own = Budget.objects.filter(project_id=project_id, user_id=user_id).order_by("pk").select_for_update()
    periods = BudgetPeriod.objects.filter(Q(key=str(user_id)) | Q(budget__in=[budget.pk for budget in own]))
    list(periods.filter(project_id=project_id).order_by("pk").select_for_update())


def _rows(project_id: str, user_id: UUID) -> Iterator[UserRows]:
    """The user's rows besides jobs and batches; with new values, the row is kept, otherwise deleted."""
    of_user = {"project_id": project_id, "user_id": user_id}
    text = str(user_id)
    renamed = {"user_id": PSEUDONYM}
    yield UserRows("labels", UserLabel.objects.filter(**of_user))
    yield UserRows("months of usage", UsageTracking.objects.filter(**of_user), renamed)
    yield UserRows("usage events", UsageEvent.objects.filter(**of_user), renamed)
    yield UserRows("reservations", UsageReservation.objects.filter(**of_user), renamed | {"idempotency_key": None})
    yield UserRows("spend", Spend.objects.filter(**of_user), renamed)
    yield UserRows("budgets of their own", Budget.objects.filter(**of_user))
    yield UserRows("periods of budgets", BudgetPeriod.objects.filter(project_id=project_id, key=text))
    yield UserRows("holds of budgets", BudgetHold.objects.filter(**of_user))
    yield UserRows("quotas of their own", AllowanceOverride.objects.filter(**of_user))
    ours = RowsOfUser(project_id, user_id)
    for name, model in (("counters of limits", Counter), ("limits of their own", LimitOverride)):
        yield UserRows(
            name, ours.counting(model.objects.filter(key__contains=f"user:{text}"), lambda row: str(row.key))
        )
    feedback = CounterFeedback.objects.filter(counter__contains=f"user:{text}")
    yield UserRows(
        "what refusals did to counters", ours.counting(feedback, lambda row: str(row.counter).partition(":")[2])
    )
    charges = naming(Charge.objects.all(), "entries", text)
    yield UserRows("charges", ours.counting(charges, lambda row: str(row.entries)))
    yield UserRows("call tallies", ours.tallies(), {"user": PSEUDONYM})
    alerts = naming(QuotaAlert.objects.all(), "figures", text) | QuotaAlert.objects.filter(message__contains=text)
    alerts |= QuotaAlert.objects.filter(subject__contains=text)
    yield UserRows("alerts", ours.naming(alerts, lambda alert: alert.projects))
    operations = naming_opened(BulkOperation.objects.all(), "parameters", text)
    operations |= BulkOperation.objects.filter(actor__contains=text)
    emptied = {"parameters": {}, "actor": ERASED, "reason": ""}
    yield UserRows(
        "bulk operations", ours.naming(operations.exclude(finished_at=None), _projects_of_operation), emptied
    )
    files = DoorFile.objects.filter(pk__in=files_naming(project_id, text))
    yield UserRows("files of doors", files)
    of_doors = DoorBatch.objects.filter(project_id=project_id)
    asked = of_doors.filter(file_name__contains=text)
    asked |= naming_opened(of_doors, "metadata", text) | naming_opened(of_doors, "errors", text)
    yield UserRows("requests of doors", asked, {"file_name": "", "metadata": None, "errors": None})
    yield UserRows(
        "lines of the admin's own log", LogEntry.objects.filter(object_repr__contains=text), {"object_repr": ERASED}
    )
    for feature in FEATURES:
        for name in feature.of_user:
            yield from feature.find(name)(project_id, user_id)


def _projects_of_operation(operation: BulkOperation) -> list[str]:
    named = operation.parameters.get("filter", {}).get("project_id")
    return [named] if named else []
