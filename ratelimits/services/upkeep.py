"""House-keeping: what the limiter keeps only for a while."""

from __future__ import annotations

from datetime import timedelta

from django.db.models.functions import Now

from ratelimits.models import CallTally, Counter

from .answers import forget_answers

KEEP_TALLIES = timedelta(days=1)
KEEP_IDLE_COUNTERS = timedelta(days=7)  # longer than any window: by then one is worth what an unused one is
AT_ONCE = 50_000


def forget_old() -> int:
    """
    Delete tallies after a day, answers after theirs, and counters nobody used for a week, a bounded number of each.

    Returns:
        How many rows were deleted.
    """
    tallies = CallTally.objects.filter(at__lt=Now() - KEEP_TALLIES)
    idle = Counter.objects.filter(
        updated_at__lt=Now() - KEEP_IDLE_COUNTERS, blocked_until=None, pressure=1.0, alert_level=0
    )
    chosen = list(tallies.values_list("pk", flat=True)[:AT_ONCE])
    deleted, _ = CallTally.objects.filter(pk__in=chosen).delete()
    names = list(idle.values_list("pk", flat=True)[:AT_ONCE])
    dropped, _ = idle.filter(pk__in=names).delete()
    return deleted + dropped + forget_answers()
