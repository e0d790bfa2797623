"""House-keeping: partitions, retention, rescue of lapsed leases, ended batches. Each duty is idempotent and short."""

from __future__ import annotations

from datetime import date, timedelta

from django.db import connection, transaction
from django.utils import timezone

from jobs.aging import DEFAULT_RULES
from jobs.backoff import TEMPLATES
from jobs.models import AgingRule, RetryPolicy

PARTITIONS_AHEAD = 7


def prepare_database() -> None:
    """What a new or emptied database needs before the first job: default rules and the log's partitions."""
    if not AgingRule.objects.exists():
        AgingRule.objects.bulk_create(
            AgingRule(
                tier=tier,
                base=rule.base,
                cap=rule.cap,
                first_after_seconds=rule.first_after,
                first_score=rule.first_score,
                step_seconds=rule.step,
                promote_after_seconds=rule.promote_after,
                promote_to=rule.promote_to,
            )
            for tier, rule in DEFAULT_RULES.items()
        )
    if not RetryPolicy.objects.exists():
        RetryPolicy.objects.bulk_create(
            RetryPolicy(
                name=name,
                initial_seconds=policy.initial,
                multiplier=policy.multiplier,
                max_delay_seconds=policy.max_delay,
                max_retries=policy.max_retries,
                jitter=policy.jitter,
                window_seconds=policy.window,
            )
            for name, policy in TEMPLATES.items()
        )
    make_partitions()


def make_partitions(*, ahead: int = PARTITIONS_AHEAD) -> list[str]:
    """
    Make the event log's partitions of today (UTC) and the days ahead.

    Attaching a ready table takes a weaker lock on the log than creating a partition in place, and the lock
    timeout gives up rather than queueing every writer behind a long query; the next round tries again.

    Returns:
        The names of those made.
    """
    today = timezone.now().date()
    made = []
    for offset in range(ahead + 1):
        name, first, last = partition_of(today + timedelta(days=offset))
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT to_regclass(%s)", [name])
            if cursor.fetchone() != (None,):
                continue
            cursor.execute("SET LOCAL lock_timeout = '2s'")
            cursor.execute(f"CREATE TABLE {name} (LIKE jobs_jobevent INCLUDING DEFAULTS)")
            cursor.execute(
                f"ALTER TABLE jobs_jobevent ATTACH PARTITION {name} FOR VALUES FROM ('{first}') TO ('{last}')"
            )
        made.append(name)
    return made


def partition_of(day: date) -> tuple[str, str, str]:
    """The name and bounds of the log's partition of one day, in UTC."""
    return f"jobs_jobevent_{day:%Y%m%d}", f"{day} 00:00+00", f"{day + timedelta(days=1)} 00:00+00"
