"""House-keeping: deleting what the limiter keeps only for a while."""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.db import transaction
from django.db.models import Max, QuerySet

from queueops.core.clock import Now
from queueops.core.sql import run_sql
from ratelimits.limiter.answers import forget_answers
from ratelimits.models import CallTally, Counter, CounterFeedback, Limit

from .proposed_limits import forget_proposed

KEEP_TALLIES = timedelta(days=1)
KEEP_IDLE_COUNTERS = timedelta(days=7)
KEEP_FEEDBACK = timedelta(days=7)
MAX_IDLE_SECONDS = 10 * 365 * 86_400.0
DELETED_AT_ONCE = 50_000


def forget_old() -> int:
    """
    Delete old rows, a bounded number of each kind.

    Tallies and answers are kept for a day. The log of refusals, counters that nobody used, and limits that nobody put
    in force are kept for a week. A counter stays longer if its limit remembers for longer. Locked counters are left
    alone.

    Returns:
        How many rows were deleted.
    """
    tallies = CallTally.objects.filter(at__lt=Now() - KEEP_TALLIES)
    chosen = list(tallies.values_list("pk", flat=True)[:DELETED_AT_ONCE])
    deleted, _ = CallTally.objects.filter(pk__in=chosen).delete()
    old = CounterFeedback.objects.filter(at__lt=Now() - KEEP_FEEDBACK).values_list("pk", flat=True)[:DELETED_AT_ONCE]
    deleted += CounterFeedback.objects.filter(pk__in=list(old)).delete()[0]
    return deleted + _forget_counters() + forget_answers() + forget_usage() + forget_proposed()


def forget_usage(*, months: int = 1000) -> int:
    """
    Delete users' months that began more than QUEUEOPS_USAGE_RETENTION_DAYS ago, each with all its events.

    Also deletes reservations that are as old. At most `months` months and DELETED_AT_ONCE reservations.

    Returns:
        How many rows were deleted.
    """
    days = settings.QUEUEOPS.usage_retention_days
    reservations = run_sql("ratelimits", "forget_reservations", {"days": days, "most": DELETED_AT_ONCE})
    old = run_sql("ratelimits", "forget_months", {"days": days, "most": months})
    return len(reservations) + len(old) + sum(int(events) for _, events in old)


@transaction.atomic
def _forget_counters() -> int:
    # Lock first, without waiting: a DELETE locks rows in the order of storage, but decisions lock them by their ids.
    names = list(_worthless().select_for_update(skip_locked=True).values_list("pk", flat=True)[:DELETED_AT_ONCE])
    return Counter.objects.filter(pk__in=names).delete()[0]


def _worthless() -> QuerySet[Counter]:
    """Return the counters that may be deleted: they hold no more information than a missing counter."""
    idle = Counter.objects.filter(updated_at__lt=Now() - KEEP_IDLE_COUNTERS, alert_level=0, proposed_at=None)
    idle = idle.exclude(blocked_until__gt=Now())
    for limit in Limit.objects.annotate(largest=Max("overrides__capacity")):
        remembers = _remembers(limit, max(limit.capacity, limit.largest or 0.0))
        if remembers > KEEP_IDLE_COUNTERS:
            idle = idle.exclude(limit_id=limit.pk, updated_at__gte=Now() - remembers)
    return idle


def _remembers(limit: Limit, capacity: float) -> timedelta:
    """How long a use counts at most: until its window is over, its place is freed or its bucket is full again."""
    filled = capacity / limit.refill_per_second if limit.refill_per_second else 0.0
    return timedelta(seconds=min(MAX_IDLE_SECONDS, max(2 * (limit.window_seconds or 0), limit.lease_seconds, filled)))
