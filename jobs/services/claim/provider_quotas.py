"""Quotas that providers state in their answers: caps become proposals, or take effect where a limit learns caps."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from uuid import UUID

from cachetools import TTLCache
from django.db import transaction

from jobs.services.finish.outcomes import Outcome
from ratelimits.limiter.counters import lock_counters
from ratelimits.limiter.provider_sync import Statement, rules_stated
from ratelimits.tuning.stated_caps import is_known_cap, note_stated_cap

from .admit import subjects_of

NOTED_SECONDS = 60.0
MAX_NOTED = 10_000
ROUNDED_UP_SECONDS = 1.0  # providers state times rounded up to the second

# Caps that this process noted in the last NOTED_SECONDS, by counter: most answers only repeat them.
_noted: TTLCache[str, float] = TTLCache(MAX_NOTED, NOTED_SECONDS, timer=time.monotonic)


def statements_of(outcomes: Sequence[Outcome]) -> dict[UUID, Statement]:
    """Return, by job id, the quotas that providers stated in their answers to these jobs' calls."""
    telling = [outcome for outcome in outcomes if outcome.stated]
    if not telling:
        return {}
    subjects = subjects_of([outcome.job for outcome in telling])
    return {
        outcome.job.id: Statement(subject, outcome.stated) for outcome, subject in zip(telling, subjects, strict=True)
    }


def note_caps(statements: Iterable[Statement], *, actor: str) -> None:
    """
    Store the caps that providers stated, where they differ from the known caps.

    This uses a transaction of its own, before outcomes are written, as `quota_feedback.cool_down` does: all locks must
    be taken in one order. A cap is believed if the provider states its window, or if the quota refills fully within
    the limit's own window.
    """
    news = {}
    for statement in statements:
        for rule, quota in rules_stated(statement):
            key, cap = rule.key(statement.subject), quota.capacity
            counter_id = rule.counter_id(statement.subject)
            if cap is None or _noted.get(counter_id) == cap or is_known_cap(rule, key, cap):
                continue
            if (
                quota.window_seconds is None
                and (quota.reset_seconds or 0.0) > (rule.window_seconds or 0.0) + ROUNDED_UP_SECONDS
            ):
                continue
            news[counter_id] = (rule, key, cap)
    if not news:
        return
    with transaction.atomic():
        lock_counters([(rule, key) for rule, key, _ in news.values()])
        for _, (rule, key, cap) in sorted(news.items()):
            note_stated_cap(rule, key, cap, actor=actor)
    _noted.update({counter_id: cap for counter_id, (_, _, cap) in news.items()})


def forget() -> None:
    """Forget the noted caps: the next stated caps are compared with the stored ones again."""
    _noted.clear()
