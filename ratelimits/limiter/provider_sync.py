"""Drift: a provider says that less is left than our counter shows, because somebody else uses the quota too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from queueops.tenancy.accounts import are_several
from ratelimits.algorithms.measures import MICRO, cost_units
from ratelimits.algorithms.spans import SpanMeter
from ratelimits.costs import PER_CALL, UNTIL_THE_END
from ratelimits.feedback import PushBack, Violation
from ratelimits.limits.catalogue import Rule, rules_for
from ratelimits.models import Limit
from ratelimits.rate_headers import StatedQuota
from ratelimits.subjects import Subject
from ratelimits.violated import violated_rules

from .counters import OpenCounter, Place

# Anthropic rounds the remaining tokens to the nearest thousand.
ROUNDED_TO = 1000
MINUTE = 60.0
MORE_PERCENT = 110  # of the excess; others use more of the quota before the next answer comes in


class Statement(NamedTuple):
    """A provider's statement about its quotas, in its answer to one of our calls."""

    subject: Subject
    quotas: tuple[StatedQuota, ...]


def rules_stated(statement: Statement) -> list[tuple[Rule, StatedQuota]]:
    """
    Return the limits that stand for the stated quotas: at most one limit for each quota.

    A limit must have the quota's unit, and also its window if the provider states one. Limits of a project are
    preferred, then limits for everyone, then limits of users. Among these the shortest window wins, then a limit by
    model. Otherwise a minute's remainder would close an hour's limit, and one model's remainder all models' limit.

    Shadow limits, daily limits, and limits of calls in flight or of enqueued tokens are left out. Limits that count
    several accounts together are left out, too: the provider's figure is about one account.
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

    Our count includes calls that the provider's figure lacks: calls granted after it stated the figure, perhaps also
    calls still on their way. Such calls hide use by others of up to their size, but no call counts twice. The next
    answer shows the hidden use. If several statements are about one counter, the last counts. Nothing is given back.

    A sliding window counts our own use, and keeps free from now on what others use, see `external_usage`. Any other
    counter is charged the excess and a tenth more (MORE_PERCENT), so that it has no more room than the provider says.
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
    """Return how much room may have come free at the provider since it stated the quota, when the call began."""
    return counter.algorithm.capacity * quota.age_seconds / (rule.window_seconds or MINUTE)


def _has_window(rule: Rule, quota: StatedQuota) -> bool:
    return quota.window_seconds is None or quota.window_seconds == rule.window_seconds


def _rounding(rule: Rule, quota: StatedQuota) -> float:
    rounds = rule.unit not in PER_CALL and (quota.capacity or 0) >= 10 * ROUNDED_TO and quota.remaining is not None
    return ROUNDED_TO / 2 if rounds and not (quota.remaining or 0) % ROUNDED_TO else 0.0
