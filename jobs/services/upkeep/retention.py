"""
Deletes old rows. Each table that grows has a rule, here or in its feature.

A backlog is deleted in small transactions, during DELETING_SHARE of the time, so that claims are not slowed down by a
busy disk. Deletion still keeps pace with the queue at its fastest (bench/deletion.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

from django.conf import settings
from django.contrib.admin.models import LogEntry
from django.contrib.sessions.models import Session
from django.db import connection, transaction
from django.db.models import QuerySet

from jobs.features import FEATURES
from jobs.models import (
    BulkOperation,
    DeadLetter,
    DutyLease,
    IdempotencyRecord,
)
from queueops.core.clock import database_now
from queueops.core.processes.isolate_failures import one_by_one
from queueops.core.sql import run_sql
from queueops.core.values.identifiers import first_id_at
from queueops.tenancy.models import CredentialRefusal
from ratelimits.models import BudgetHold, BudgetPeriod, QuotaAlert, Spend
from ratelimits.money.standings import BEGINNING

from .partitions import AUDIT, EVENTS, Partitioned, drop_part

DELETING_SHARE = 0.25
ROWS_OF_A_DELETE = 1000
LATE = timedelta(days=1)
ARCHIVING = "archive"  # the duty of manage.py archive
MAX_PERIOD = timedelta(days=32)  # no period of a budget is longer, except for periods that never end
CLOCKS_DIFFER = timedelta(days=1)  # the most by which the clocks behind job ids differ from the database's

Forget = Callable[[datetime, int], int]
Oldest = Callable[[datetime], datetime | None]


@dataclass(frozen=True, slots=True)
class RetentionRule:
    """
    Attributes:
        name: The rows that are deleted, in words for people.
        setting: The name of a setting in QUEUEOPS, in days; None: rows have a time of their own.
        forget: Deletes rows older than a time, at most so many; returns how many.
        oldest: Returns the time of the oldest row that is older than a time; None: there is none.
    """

    name: str
    setting: str | None
    forget: Forget
    oldest: Oldest

    def __str__(self) -> str:
        return self.name

    def days(self) -> int:
        return getattr(settings.QUEUEOPS, self.setting) if self.setting else 0

    def before(self) -> datetime:
        return datetime.fromtimestamp(database_now(), UTC) - timedelta(days=self.days())


@dataclass(frozen=True, slots=True)
class Overdue:
    """Rows that should have been deleted. `since`: the time of the oldest."""

    name: str
    days: int
    since: datetime


@dataclass(frozen=True, slots=True)
class Deleted:
    """
    Attributes:
        rows: How many rows, or parts of the logs, by the rules' names.
        is_through: Nothing more is to be deleted now.
    """

    rows: Mapping[str, int]
    is_through: bool


def apply_retention(*, seconds: float, share: float = DELETING_SHARE, chunk: int = ROWS_OF_A_DELETE) -> Deleted:
    """
    Delete rows older than their retention, a chunk of each table in turn; a rule that fails stops no other. Idempotent.

    Args:
        seconds: Stop after so long, once the chunk under way is done; the next call goes on.
        share: The part of the time that is spent deleting while there is more to delete.
    """
    until = time.monotonic() + seconds
    deleted = dict.fromkeys((rule.name for rule in rules()), 0)
    unfinished = rules()

    def take_turn(rule: RetentionRule) -> None:
        begun = time.monotonic()
        unfinished.remove(rule)
        count = rule.forget(rule.before(), chunk)
        deleted[rule.name] += count
        if count >= chunk:
            unfinished.append(rule)
            rest = (time.monotonic() - begun) * (1 / share - 1)
            time.sleep(min(max(0.0, until - time.monotonic()), rest))

    while unfinished:
        one_by_one(list(unfinished), take_turn, what="the retention of")
        if time.monotonic() >= until:
            break
    run_sql("jobs", "fold_counts", {})
    return Deleted(deleted, is_through=not unfinished)


def find_overdue() -> list[Overdue]:
    """Return the rules whose oldest row should have been deleted LATE ago: nobody deletes, or not fast enough."""
    found = []
    late = 2 * LATE if is_archived() else LATE  # an archive takes whole days, once a day
    for rule in rules():
        before = rule.before()
        oldest = rule.oldest(before - late)
        if oldest is not None:
            found.append(Overdue(rule.name, rule.days(), oldest))
    return found


def _by_statement(name: str) -> Callable[[datetime, int], int]:
    return lambda before, most: len(run_sql("jobs", name, {"before": before, "most": most}))


def _oldest_by(name: str) -> Oldest:
    return lambda before: next((at for (at,) in run_sql("jobs", name, {"before": before})), None)


def is_archived() -> bool:
    """
    Whether only the archive may delete old rows.

    The duty's row stays in the database once the duty was done: a host whose settings name no archive must not delete
    rows that another host is to archive.
    """
    return settings.QUEUEOPS.archive_dir is not None or DutyLease.objects.filter(duty=ARCHIVING).exists()


def _unless_archived(forget: Forget) -> Forget:
    return lambda before, most: 0 if is_archived() else forget(before, most)


def in_order(rows: Callable[[datetime], QuerySet[Any]], column: str) -> tuple[Forget, Oldest]:
    """Return the `forget` and `oldest` of a rule that goes by a column of the rows."""

    def old(before: datetime) -> QuerySet[Any]:
        return rows(before).filter(**{f"{column}__lt": before}).order_by(column)

    def forget(before: datetime, most: int) -> int:
        chosen = list(old(before).values_list("pk", flat=True)[:most])
        rows(before).filter(pk__in=chosen).delete()
        return len(chosen)

    return forget, lambda before: old(before).values_list(column, flat=True).first()


def _parts(kept: Partitioned, *, may_go: Callable[[datetime], bool] = lambda before: True) -> tuple[Forget, Oldest]:
    """Return the `forget` and `oldest` of a rule that drops whole parts of a log."""

    def forget(before: datetime, most: int) -> int:
        names = kept.before(before.date())[:most] if may_go(before) else []
        return sum(map(drop_part, names))

    def oldest(before: datetime) -> datetime | None:
        names = kept.before(before.date())
        return datetime.strptime(f"{names[0].rpartition('_')[2]} +0000", f"{kept.shape} %z") if names else None

    return forget, oldest


# Without this, the planner may read the whole table for each chunk.
BY_INDEX = "SET LOCAL enable_seqscan = off"


def keep_timelines(before: datetime, most: int) -> int:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(BY_INDEX)
        return len(run_sql("jobs", "keep_timelines", {"before": before + CLOCKS_DIFFER, "most": most}))


def timelines_are_kept(before: datetime) -> bool:
    bare = DeadLetter.objects.filter(timeline__isnull=True, job_id__lt=first_id_at(before + CLOCKS_DIFFER))
    return not bare.exists()


def _past_periods(before: datetime) -> QuerySet[BudgetPeriod]:
    """
    Return the periods that have ended. Periods that never end are kept, because nobody could sum them up again: their
    ledger entries are deleted.
    """
    began = BudgetPeriod.objects.filter(starts_at__gt=BEGINNING, starts_at__lt=before - MAX_PERIOD)
    return began.filter(held=0, alerted_level=0).order_by("starts_at")


@transaction.atomic
def _forget_periods(before: datetime, most: int) -> int:
    chosen = list(_past_periods(before).values_list("pk", flat=True)[:most])
    # Skip locked rows until the next time: waiting could deadlock with a holder that waits for a row locked here.
    locked = BudgetPeriod.objects.filter(pk__in=chosen, held=0).order_by("pk").select_for_update(skip_locked=True)
    BudgetPeriod.objects.filter(pk__in=list(locked.values_list("pk", flat=True))).delete()
    return len(chosen)


def _oldest_period(before: datetime) -> datetime | None:
    began = _past_periods(before).values_list("starts_at", flat=True).first()
    return began and began + MAX_PERIOD


def nothing_is_late(before: datetime) -> None:
    """Return no oldest row: an `oldest` for rules whose rows go by a time of their own."""


CORE_RULES: Sequence[RetentionRule] = (
    RetentionRule(
        "finished jobs",
        "retention_days",
        _unless_archived(_by_statement("delete_finished_jobs")),
        _oldest_by("find_deletable_job"),
    ),
    RetentionRule("timelines of dead letters", "retention_days", keep_timelines, nothing_is_late),
    RetentionRule(
        "days of the log",
        "retention_days",
        *_parts(EVENTS, may_go=lambda before: not is_archived() and timelines_are_kept(before)),
    ),
    RetentionRule(
        "batches",
        "batch_retention_days",
        _unless_archived(_by_statement("delete_ended_batches")),
        _oldest_by("find_deletable_batch"),
    ),
    RetentionRule("months of the audit trail", "audit_retention_days", *_parts(AUDIT)),
    RetentionRule(
        "lines of the admin's own log",
        "audit_retention_days",
        *in_order(lambda _: LogEntry.objects.all(), "action_time"),
    ),
    RetentionRule(
        "resolved alerts",
        "alert_retention_days",
        *in_order(lambda before: QuotaAlert.objects.filter(resolved_at__lt=before), "opened_at"),
    ),
    RetentionRule(
        "bulk operations",
        "operation_retention_days",
        *in_order(lambda _: BulkOperation.objects.all(), "finished_at"),
    ),
    RetentionRule(
        "stored answers", "answer_retention_days", *in_order(lambda _: IdempotencyRecord.objects.all(), "created_at")
    ),
    RetentionRule(
        "what calls held that nobody heard of",
        "retention_days",
        *in_order(lambda _: BudgetHold.objects.filter(lost=True), "expires_at"),
    ),
    RetentionRule(
        "refusals of credentials that were the jobs' own",
        "retention_days",
        *in_order(lambda _: CredentialRefusal.objects.filter(disproved=True), "refused_at"),
    ),
    RetentionRule("past periods of budgets", "retention_days", _forget_periods, _oldest_period),
    RetentionRule("spend", "spend_retention_days", *in_order(lambda _: Spend.objects.all(), "at")),
    RetentionRule("sessions that are over", None, *in_order(lambda _: Session.objects.all(), "expire_date")),
)


@cache
def _of_features() -> tuple[RetentionRule, ...]:
    return tuple(feature.find(name) for feature in FEATURES for name in feature.retention)


def rules() -> list[RetentionRule]:
    """Return the rules of all tables that grow."""
    return [*CORE_RULES, *_of_features()]
