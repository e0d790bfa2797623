"""
Effective priority: a score that grows with waiting. Pure; jobs/sql/choose_jobs.sql computes the same.

    score(tier, age) = score(promote_to, age - promote_after)                    once age >= promote_after
                     = min(cap, first_score + floor((age - first_after) / step)) once age >= first_after
                     = base                                                      before that

Age counts from `eligible_since`; deferrals and retries do not reset it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .states import Priority


@dataclass(frozen=True, slots=True)
class TierGrowth:
    """One tier's growth. Durations in seconds; None: never."""

    base: int
    cap: int
    first_after: float | None = None
    first_score: int | None = None
    step: float | None = None
    promote_after: float | None = None
    promote_to: Priority | None = None


# The table of the product's specification; AgingRule rows start as these.
DEFAULT_RULES: dict[Priority, TierGrowth] = {
    Priority.URGENT: TierGrowth(base=100, cap=100),
    Priority.NORMAL: TierGrowth(base=10, cap=99, first_after=900, first_score=20, step=3600),
    Priority.LOW: TierGrowth(
        base=1,
        cap=9,
        first_after=1800,
        first_score=5,
        step=1800,
        promote_after=7200,
        promote_to=Priority.NORMAL,
    ),
}


def effective_priority(tier: Priority, age_seconds: float, rules: Mapping[Priority, TierGrowth] = DEFAULT_RULES) -> int:
    """The score of a job of `tier` that has been eligible for `age_seconds`."""
    rule = rules[tier]
    if rule.promote_after is not None and rule.promote_to is not None and age_seconds >= rule.promote_after:
        return effective_priority(rule.promote_to, age_seconds - rule.promote_after, _unpromoted(rules))
    if rule.first_after is None or rule.first_score is None or age_seconds < rule.first_after:
        return rule.base
    steps = int((age_seconds - rule.first_after) // rule.step) if rule.step else 0
    return min(rule.cap, rule.first_score + steps)


def class_of(score: int, rules: Mapping[Priority, TierGrowth] = DEFAULT_RULES) -> Priority:
    """The highest tier whose base the score has reached: an escalated low job counts as normal."""
    reached = [tier for tier, rule in rules.items() if rule.base <= score]
    if not reached:
        return min(rules, key=lambda tier: rules[tier].base)
    return max(reached, key=lambda tier: rules[tier].base)


def age_of_score(tier: Priority, score: int, rules: Mapping[Priority, TierGrowth] = DEFAULT_RULES) -> float | None:
    """The least age in seconds at which a job of `tier` has at least this score; None: it never reaches this score."""
    rule = rules[tier]
    age = _age_in_rule(rule, score)
    if rule.promote_after is None or rule.promote_to is None or (age is not None and age < rule.promote_after):
        return age
    later = _age_in_rule(rules[rule.promote_to], score)
    return None if later is None else rule.promote_after + later


def _age_in_rule(rule: TierGrowth, score: int) -> float | None:
    if score <= rule.base:
        return 0.0
    if rule.first_after is None or rule.first_score is None or score > rule.cap:
        return None
    if score <= rule.first_score:
        return rule.first_after
    return rule.first_after + (score - rule.first_score) * rule.step if rule.step else None


def _unpromoted(rules: Mapping[Priority, TierGrowth]) -> dict[Priority, TierGrowth]:
    """Return the rules without promotion: otherwise two rules that promote to each other would recurse for ever."""
    return {
        tier: TierGrowth(rule.base, rule.cap, rule.first_after, rule.first_score, rule.step)
        for tier, rule in rules.items()
    }
