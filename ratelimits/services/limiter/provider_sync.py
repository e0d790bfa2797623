"""Drift: a provider says that less is left than our counter shows, because somebody else uses the quota too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from queueops.tenancy.accounts import are_several
from ratelimits.algorithms.measures import MICRO, cost_units
from ratelimits.algorithms.spans import SpanMeter
from ratelimits.costs import PER_CALL, UNTIL_THE_END
from ratelimits.feedback import PushBack, Violation
from ratelimits.models import Limit
from ratelimits.rate_headers import StatedQuota
from ratelimits.services.limits.catalogue import Rule, rules_for
from ratelimits.subjects import Subject
from ratelimits.violated import violated_rules

from .counters import OpenCounter, Place

# Anthropic rounds the remaining tokens to the nearest thousand.
ROUNDED_TO = 1000
MINUTE = 60.0
MORE_PERCENT = 110  # others go on using it before the next answer comes in


class Statement(NamedTuple):
    """A provider's statement about its quotas, in its answer to one of our calls."""

    subject: Subject
    quotas: tuple[StatedQuota, ...]


def rules_stated(statement: Statement) -> list[tuple[Rule, StatedQuota]]:
    """
    Return the limits that stand for the stated quotas: of the same unit and window, and counted where a key is.

    A quota stands for a single limit. If several limits have its unit, it is the limit with the shortest window, and of
    those one that tells models apart. Otherwise a minute's remainder would close an hour's limit, and one model's
    remainder the limit of all models. Shadow limits and limits of a day are left alone. Limits that count several
    accounts together are left alone, too: the provider speaks of one account.
    """
    rules = [
        rule
        for rule in rules_for(statement.subject)
        if not rule.shadow and not rule.hard_reset and rule.unit not in UNTIL_THE_END
    ]
    found = []
    for quota in statement.quotas:
        of_unit = [rule for rule in rules if rule.unit == quota.unit and _has_window(rule, quota)]
        named = PushBack((Violation(scope="project", unit=quota.unit),))  # type: ignore[arg-type]  # a limit has it
        meant = [one.rule for one in violated_rules(of_unit, named)] if of_unit else []
        found += [(rule, quota) for rule in sorted(meant, key=_width)[:1]]
    return [(rule, quota) for rule, quota in found if not _counts_several(rule, statement.subject)]


def places_stated(statements: Iterable[Statement]) -> Iterable[Place]:
    for statement in statements:
        yield from ((rule, rule.key(statement.subject)) for rule, _ in rules_stated(statement))


def take_drift(statements: Iterable[Statement], counters: Mapping[str, OpenCounter]) -> None:
    """
    Correct locked counters by what others have used, where the provider says that less is left than we think.

    Our count has calls that the provider's lacks: those granted after it spoke, and perhaps some on their way to it.
    They make our room smaller, and no call counts twice. Use that is missed this way shows in the next answer. If
    several statements are about one counter, the last counts. Nothing is ever given back.

    A sliding window knows how much of its use is ours. It keeps the rest free ahead, see `external_usage`. Any other
    counter is charged so much that it has no more room than the provider says.
    """
    last: dict[str, tuple[OpenCounter, StatedQuota]] = {}
    for statement in statements:
        for rule, quota in rules_stated(statement):
            counter = counters.get(rule.counter_id(statement.subject))
            if counter is not None and quota.remaining is not None:
                last[rule.counter_id(statement.subject)] = (counter, quota)
    for counter, quota in last.values():
        rule, remaining = counter.rule, quota.remaining or 0.0
        rounded, freed = _rounding(rule, quota), _freed(rule, quota, counter)
        if isinstance(counter.meter, SpanMeter):
            counter.hear(remaining, rounded=rounded, freed=freed)
            continue
        units = counter.meter.available() - cost_units(remaining + rounded + freed)
        if units >= MICRO:
            counter.take_from_others(-(-units * MORE_PERCENT // (100 * MICRO)) * MICRO)


def _counts_several(rule: Rule, subject: Subject) -> bool:
    by_project = rule.scope in (Limit.Scope.PROJECT, Limit.Scope.PROJECT_USER)
    by_user = rule.scope in (Limit.Scope.USER, Limit.Scope.PROJECT_USER)
    return are_several(
        subject.service, project=subject.project if by_project else None, user=subject.user if by_user else None
    )


def _width(rule: Rule) -> tuple[float, bool]:
    return rule.window_seconds or MINUTE, not (rule.per_model or rule.model)


def _freed(rule: Rule, quota: StatedQuota, counter: OpenCounter) -> float:
    """Return what the provider may have freed since it spoke, which was as the call began."""
    return counter.algorithm.capacity * quota.age_seconds / (rule.window_seconds or MINUTE)


def _has_window(rule: Rule, quota: StatedQuota) -> bool:
    return quota.window_seconds is None or quota.window_seconds == rule.window_seconds


def _rounding(rule: Rule, quota: StatedQuota) -> float:
    rounds = rule.unit not in PER_CALL and (quota.capacity or 0) >= 10 * ROUNDED_TO and quota.remaining is not None
    return ROUNDED_TO / 2 if rounds and not (quota.remaining or 0) % ROUNDED_TO else 0.0
