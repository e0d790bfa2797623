"""Opens alerts about objectives whose budget is used up, or is used up too fast while some of it can be saved."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from django.db import transaction

from jobs.features.flow.flow import EVENT_LOG
from jobs.features.objectives.objectives import (
    AN_HOUR,
    FIVE_MINUTES,
    HALF_AN_HOUR,
    SIX_HOURS,
    THREE_DAYS,
    ObjectiveStanding,
    budget_of,
    span_words,
    standings_of,
    words_of,
)
from jobs.models import FlowCursor, Objective, ObjectiveSample
from queueops.core.clock import Now
from queueops.core.sql import run_sql
from ratelimits.alerts.alerts import Opening, reconcile
from ratelimits.models import QuotaAlert

Severity = QuotaAlert.Severity

OBJECTIVES_A_LOOK = 500  # objectives in one call
OBJECTIVES_A_READ = 100  # objectives in one statement
MAX_RECALLED = 200_000  # jobs from before an objective was made
RECALL_SETTLES_SECONDS = 5.0
MIN_MISSED = 5  # jobs that must miss in the longer window: among few jobs a single miss shows no pace
KEPT_BURN = 0.5  # an open alert ends below this share of the pace that opens alerts
KEPT_BUDGET = 0.05  # an alert of a used-up budget stays open until this share of the budget is left


@dataclass(frozen=True, slots=True)
class BurnRule:
    """
    A pace that opens an alert when it holds over a long window and goes on in a short one.

    The factors are those of "Alerting on SLOs", chapter 5 of Google's Site Reliability Workbook: 2 % of a month's
    budget in an hour, 5 % in six, 10 % in three days.

    Attributes:
        share: The missed share of all jobs that opens the alert if the budget is so large that no pace reaches the
            factor.
    """

    long: int
    short: int
    factor: float
    share: float
    severity: QuotaAlert.Severity

    def is_met(self, standing: ObjectiveStanding, *, part: float = 1.0) -> bool:
        wanted = part * min(self.factor, self.share / budget_of(standing.objective))
        burns = min(standing.burn(self.long), standing.burn(self.short))
        return burns >= wanted and standing.recent[self.long].missed >= MIN_MISSED


BURN_RULES = (
    BurnRule(AN_HOUR, FIVE_MINUTES, 14.4, 0.5, Severity.CRITICAL),
    BurnRule(SIX_HOURS, HALF_AN_HOUR, 6.0, 0.25, Severity.CRITICAL),
    BurnRule(THREE_DAYS, SIX_HOURS, 1.0, 1.0, Severity.WARNING),
)


def watch_objectives(*, at: float | None = None) -> None:
    """
    Alert about objectives that are broken, or whose budget is used up too fast. Each has one alert, which may worsen.

    Each call looks at the next OBJECTIVES_A_LOOK, so that one project's objectives do not hide those of another. Alerts
    of the others stay as they are.

    Args:
        at: Seconds since 1970; None: now.
    """
    begin_objectives()
    everyone = list(Objective.objects.order_by("pk").values_list("pk", flat=True))
    turn = _turn.of(everyone)
    keep = {str(pk) for pk in {*everyone} - {*turn}}
    found: list[Opening] = []
    for place in range(0, len(turn), OBJECTIVES_A_READ):
        some = turn[place : place + OBJECTIVES_A_READ]
        standings = standings_of(Objective.objects.filter(pk__in=some), at=at)
        found += _openings(standings.values())
        keep |= {str(one.objective.pk) for one in standings.values() if _is_kept(one)}
    reconcile(QuotaAlert.Kind.OBJECTIVE, found, keep=keep)


@dataclass(slots=True)
class _Turn:
    """
    How far this process has looked through the objectives.

    Attributes:
        last: The last objective that was looked at. None: begin anywhere. If each process began with the first and
            ended after one call, the last objectives would never be looked at.
    """

    last: int | None = None

    def of(self, everyone: Sequence[int]) -> Sequence[int]:
        """Return the ids that follow the last turn's, at most OBJECTIVES_A_LOOK; `everyone` is in order."""
        if self.last is None and everyone:
            self.last = random.choice(everyone)  # noqa: S311 - spreads, hides nothing
        first = bisect_right(everyone, self.last or 0)
        turn = [*everyone[first:], *everyone[:first]][:OBJECTIVES_A_LOOK]
        self.last = turn[-1] if turn else None
        return turn


_turn = _Turn()


@transaction.atomic
def begin_objectives() -> int:
    """
    Begin to count new objectives, and count the newest MAX_RECALLED jobs from before.

    No process counts the log meanwhile: otherwise jobs submitted from then on could be counted without the objective.

    Returns:
        How many began; 0 also while the log is being counted.
    """
    new = list(Objective.objects.filter(counts_from=None).values_list("pk", flat=True))
    if not new or not FlowCursor.objects.select_for_update(skip_locked=True).filter(pk=EVENT_LOG):
        return 0
    for pk in new:
        Objective.objects.filter(pk=pk).update(counts_from=Now())
        ObjectiveSample.objects.filter(objective_id=pk).delete()  # counts written while the objective was changed
        run_sql("jobs", "recall_objective", {"objective": pk, "most": MAX_RECALLED, "settle": RECALL_SETTLES_SECONDS})
    return len(new)


def _openings(standings: Iterable[ObjectiveStanding]) -> Iterator[Opening]:
    for standing in standings:
        met = [rule for rule in BURN_RULES if rule.is_met(standing)]
        if not met and not standing.is_broken:
            continue
        objective = standing.objective
        severity = next((rule.severity for rule in met), Severity.WARNING)
        yield Opening(
            QuotaAlert.Kind.OBJECTIVE,
            str(objective.pk),
            severity,
            f"{objective.name}: {_words(standing, met[0] if met else None)}",
            {
                "objective": words_of(objective),
                "attained_percent": _percent(standing),
                "missed": standing.whole.missed,
                "budget_left_percent": round(100 * (standing.budget_left or 0), 1),
                "burn": {span_words(seconds): round(standing.burn(seconds), 2) for seconds in standing.recent},
                "projects": [objective.project_id] if objective.project_id else [],
            },
        )


def _words(standing: ObjectiveStanding, rule: BurnRule | None) -> str:
    objective = standing.objective
    parts = []
    if rule is not None:
        lately = standing.recent[rule.long]
        parts.append(
            f"{lately.missed:,} of {lately.due:,} jobs missed it in {span_words(rule.long)}, "
            f"{standing.burn(rule.long):.1f} times as many as it allows"
        )
    if standing.is_broken:
        parts.append(
            f"it is broken: {_percent(standing):g} % of {standing.whole.due:,} jobs met it in {objective.window_days} d"
        )
    return f"{words_of(objective)}; {'; '.join(parts)}"


def _percent(standing: ObjectiveStanding) -> float:
    return round(100 * (standing.whole.share or 0), 3)


def _is_kept(standing: ObjectiveStanding) -> bool:
    left = standing.budget_left
    is_spent = left is not None and left < KEPT_BUDGET
    return is_spent or any(rule.is_met(standing, part=KEPT_BURN) for rule in BURN_RULES)
