"""
Counts objectives from the job log, as the flow is counted, and sums up their counts over windows that end now.

A job counts when its deadline has passed. An objective's figures thus lag behind no more than the counting of the log
does. A stall shows as soon as the first deadline passes during it. Nothing is written while jobs run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from django.db.models import CharField, Exists, OuterRef
from django.db.models.functions import Cast

from jobs.features.objectives.models import COUNTED_COARSE, COUNTED_FINE, MAX_WINDOW_DAYS
from jobs.models import Objective, ObjectiveSample
from queueops.core.clock import Now, database_now
from queueops.core.sql import run_sql
from ratelimits.models import QuotaAlert

KEEP_FINE = timedelta(minutes=65)  # how long fine samples are kept after their deadlines
KEEP_RECKONINGS = timedelta(days=MAX_WINDOW_DAYS + 1)
MAX_OBJECTIVES = 100
FIVE_MINUTES, HALF_AN_HOUR, AN_HOUR, SIX_HOURS, THREE_DAYS = 300, 1800, 3600, 6 * 3600, 3 * 86_400
WINDOWS = (FIVE_MINUTES, HALF_AN_HOUR, AN_HOUR, SIX_HOURS, THREE_DAYS)  # the windows of burn rates, in seconds
_SIZES = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))


@dataclass(frozen=True, slots=True)
class Reckoning:
    """Jobs whose deadlines passed in one window, and how many of them met the objective."""

    due: int
    met: int

    @property
    def missed(self) -> int:
        return self.due - self.met

    @property
    def share(self) -> float | None:
        """Share of the jobs that met the objective, 0 to 1; None: there were no jobs."""
        return self.met / self.due if self.due else None


@dataclass(frozen=True, slots=True)
class ObjectiveStanding:
    """
    Attributes:
        whole: The jobs of the objective's own window.
        recent: The jobs of each of WINDOWS, by its seconds.
    """

    objective: Objective
    whole: Reckoning
    recent: Mapping[int, Reckoning]

    @property
    def budget_left(self) -> float | None:
        """The share of the allowed misses that is left; below 0: more have missed; None: there were no jobs."""
        return None if self.whole.share is None else 1 - (1 - self.whole.share) / budget_of(self.objective)

    @property
    def is_broken(self) -> bool:
        """Whether more jobs have missed the objective than are allowed to."""
        return self.budget_left is not None and self.budget_left < 0

    def burn(self, seconds: int) -> float:
        """Return the pace of misses as a multiple of the allowed pace; 1: the budget lasts as long as the window."""
        share = self.recent[seconds].share
        return 0.0 if share is None else (1 - share) / budget_of(self.objective)


def budget_of(objective: Objective) -> float:
    """Return the share of jobs that may miss the objective, 0 to 1."""
    return 1 - float(objective.percent) / 100


def words_of(objective: Objective) -> str:
    """Return an objective as `95 % start within 5 min: jobs of kind x of acme`."""
    scope = "".join(
        f" {word} {value}"
        for word, value in (("of kind", objective.kind), ("for", objective.service), ("of", objective.project_id))
        if value
    )
    within = "" if objective.within_seconds is None else f" within {span_words(objective.within_seconds)}"
    return f"{float(objective.percent):g} % {objective.aim}{within}: {'' if scope else 'all '}jobs{scope}"


def span_words(seconds: int) -> str:
    """Return a time span in words, in the largest unit that divides it: `5 min`, `90 s`, `36 h`."""
    size, unit = next((size, unit) for size, unit in _SIZES if seconds % size == 0)
    return f"{seconds // size} {unit}"


def count_objectives(after: int, upto: int) -> None:
    """Count a part of the log for all objectives, in the transaction that takes the part."""
    if Objective.objects.filter(counts_from__isnull=False).exists():
        run_sql("jobs", "count_objectives", {"after": after, "upto": upto})


def forget_old_reckonings() -> int:
    """Delete samples that no window reaches any more. Returns how many rows."""
    samples = ObjectiveSample.objects.all()
    fine, _ = samples.filter(span_seconds=COUNTED_FINE, at__lt=Now() - KEEP_FINE).delete()
    coarse, _ = samples.filter(span_seconds=COUNTED_COARSE, at__lt=Now() - KEEP_RECKONINGS).delete()
    return fine + coarse


def standings_of(objectives: Iterable[Objective], *, at: float | None = None) -> dict[int, ObjectiveStanding]:
    """
    Return the standing of each objective by its id, in one statement.

    Args:
        at: Seconds since 1970; None: now.
    """
    rows = list(objectives)
    asked = [(row.pk, window) for row in rows for window in {*WINDOWS, _whole(row)}]
    moment = datetime.fromtimestamp(database_now() if at is None else at, UTC)
    found = {
        (pk, window): Reckoning(due, met)
        for pk, window, due, met in run_sql(
            "jobs",
            "read_objectives",
            {"ids": [pk for pk, _ in asked], "windows": [window for _, window in asked], "at": moment},
        )
    }
    return {
        row.pk: ObjectiveStanding(
            row, found[row.pk, _whole(row)], {window: found[row.pk, window] for window in WINDOWS}
        )
        for row in rows
    }


def standing_objectives(*, at: float | None = None) -> Sequence[ObjectiveStanding]:
    """Return the standings of at most MAX_OBJECTIVES objectives: those with an open alert come first, then by name."""
    told = QuotaAlert.objects.filter(kind=QuotaAlert.Kind.OBJECTIVE, resolved_at=None)
    is_told = Exists(told.filter(subject=Cast(OuterRef("pk"), CharField())))
    rows = list(Objective.objects.order_by(is_told.desc(), "name")[:MAX_OBJECTIVES])
    found = standings_of(rows, at=at) if rows else {}
    return [found[row.pk] for row in rows]


def _whole(objective: Objective) -> int:
    return objective.window_days * 86_400
