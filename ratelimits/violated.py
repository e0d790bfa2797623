"""Finding the limits here that correspond to the quota that a provider says was exceeded. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ratelimits.costs import UNTIL_THE_END
from ratelimits.feedback import PushBack, Violation
from ratelimits.limits.catalogue import Rule
from ratelimits.models import Limit, LimitCallType, Unit

_LEVEL_OF_RULE: dict[str, int] = {
    Limit.Scope.USER: 0,
    Limit.Scope.PROJECT_USER: 0,
    Limit.Scope.PROJECT: 1,
    Limit.Scope.GLOBAL: 2,
}
# For each scope of a violation, the levels at which to look for limits, in order. A wider level includes the refused
# user or project.
_LEVELS: dict[str, tuple[int, ...]] = {
    "": (0, 1, 2),
    "user": (0, 1, 2),
    "project_user": (0, 1, 2),
    "project": (1, 2, 0),
    "global": (2, 1, 0),
}
# For each unit of a violation, the units of limits to look for, in order: the same unit, then units that contain it or
# are parts of it.
_UNITS: dict[str, tuple[str, ...]] = {
    "": (Unit.REQUESTS,),
    "requests": (Unit.REQUESTS,),
    "tokens": (Unit.TOKENS, Unit.INPUT_TOKENS, Unit.OUTPUT_TOKENS),
    "input_tokens": (Unit.INPUT_TOKENS, Unit.TOKENS),
    "output_tokens": (Unit.OUTPUT_TOKENS, Unit.TOKENS),
}
MINUTE = 60


class Violated(NamedTuple):
    """
    A limit to slow down.

    Attributes:
        exact: The limit counts exactly what the provider named, so that a stated cap is this limit's cap.
    """

    rule: Rule
    violation: Violation
    exact: bool


def violated_rules(rules: Sequence[Rule], found: PushBack) -> list[Violated]:
    """
    Choose, among the limits that count the refused call, the limits that were exceeded: each at most once.

    A violation slows the limits of its unit, period, scope and call type, and only the model's limits where there are
    any. Where it leaves something open, or no limit fits, requests go before tokens, minutes before days, and the
    narrowest scope first. A refusal that names nothing therefore slows the user's requests a minute, or the project's
    where users have no limit. Limits of calls in flight or of enqueued tokens are never chosen.
    """
    chosen: dict[int, Violated] = {}
    for violation in found.violations or (Violation(),):
        for rule in _meant(rules, violation):
            candidate = Violated(rule, violation, _is_exact(rule, violation))
            before = chosen.get(rule.id)
            # A violation that names exactly this limit outranks all others; then a day's violation outranks a minute's.
            if before is None or (_weight(candidate) > _weight(before)):
                chosen[rule.id] = candidate
    return list(chosen.values())


def possible_rules(rules: Sequence[Rule], found: PushBack) -> list[Violated]:
    """
    Return the limits, of any unit, that a refusal may mean if it names no unit; an empty list if it names a unit.

    If one of these limits shows no room by our own count, that limit is taken to be exceeded.
    """
    chosen: dict[int, Violated] = {}
    for violation in found.violations or (Violation(),):
        if violation.unit:
            return []
        for unit in (Unit.REQUESTS, Unit.TOKENS, Unit.INPUT_TOKENS, Unit.OUTPUT_TOKENS):
            of_unit = [rule for rule in rules if rule.unit == unit]
            for rule in _meant(of_unit, violation):
                chosen[rule.id] = Violated(rule, violation, exact=False)
    return list(chosen.values())


def _weight(one: Violated) -> tuple[bool, bool]:
    return one.exact, one.violation.per_day


def _meant(rules: Sequence[Rule], violation: Violation) -> Sequence[Rule]:
    left: Sequence[Rule] = [rule for rule in rules if rule.unit not in UNTIL_THE_END]
    left = _preferred(left, lambda rule: not rule.shadow)
    for unit in _UNITS[violation.unit]:
        if of_unit := [rule for rule in left if rule.unit == unit]:
            left = of_unit
            break
    left = _preferred(left, lambda rule: rule.hard_reset == violation.per_day)
    for level in _LEVELS[violation.scope]:
        if at_level := [rule for rule in left if _LEVEL_OF_RULE[rule.scope] == level]:
            left = at_level
            break
    if violation.call_type:
        left = _preferred(left, lambda rule: rule.call_type == violation.call_type)
    if violation.model:
        left = _preferred(left, lambda rule: bool(rule.per_model or rule.model))
    return left


def _preferred(rules: Sequence[Rule], wanted: Callable[[Rule], bool]) -> Sequence[Rule]:
    return [rule for rule in rules if wanted(rule)] or rules


def _is_exact(rule: Rule, violation: Violation) -> bool:
    return (
        (rule.unit == violation.unit or (rule.unit, violation.unit) == (Unit.TOKENS, "input_tokens"))
        and rule.hard_reset == violation.per_day
        and (violation.per_day or (rule.window_seconds or MINUTE) == violation.window_seconds)
        and bool(violation.scope)
        and _LEVEL_OF_RULE[rule.scope] == _LEVELS[violation.scope][0]
        and (not violation.call_type or rule.call_type in {LimitCallType.ANY, violation.call_type})
    )
