"""A batch's progress and dead letters in words, for terminals. Pure but for the two reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, Max

from jobs.features.forecast.reasons import holds_of_batch
from jobs.models import Batch, DeadLetter
from jobs.services.explain.snapshots import batch_snapshot
from jobs.states import RUNNING, SHOWN, TERMINAL, BatchVerdict, JobState

BAR_CHARACTERS = 16
MAX_REASON_CHARACTERS = 160
MAX_REASONS = 20

# The most wanted figures come first: a narrow terminal cuts the line.
_SHOWN = sorted(SHOWN, key=lambda state: state not in TERMINAL)


@dataclass(frozen=True, slots=True)
class CauseCount:
    """Dead letters with one cause."""

    fingerprint: str
    count: int
    code: str
    message: str
    remedy: str

    def line(self) -> str:
        message = self.message
        if len(message) > MAX_REASON_CHARACTERS:
            message = message[: MAX_REASON_CHARACTERS - 1] + "…"
        return f"{self.count} x {self.code}: {message}"


@dataclass(frozen=True, slots=True)
class BatchReport:
    """
    A batch at one moment.

    Attributes:
        progress: Percent, as in `BatchSnapshot`.
        rate: Jobs ended per second; None: not known yet.
        left: The time until its forecast end; None: there is no forecast.
        verdict: Its state in one word; see `states.BatchVerdict`.
        held_by: The first reason of the lane where most of its jobs wait; empty: that lane has none.
        reasons: The causes of its open dead letters, the most frequent first, at most MAX_REASONS.
    """

    batch: Batch
    verdict: BatchVerdict
    groups: Mapping[str, int]
    finished: int
    total: int
    progress: float
    rate: float | None
    left: timedelta | None
    held_by: str
    reasons: Sequence[CauseCount]

    @property
    def is_done(self) -> bool:
        return self.finished >= self.total

    @property
    def took(self) -> timedelta | None:
        """From submission to the end; None: the end has not been noticed yet."""
        return self.batch.finished_at - self.batch.created_at if self.batch.finished_at else None

    def counts(self) -> str:
        """Say how many jobs are in which state; states without any are left out."""
        return "  ".join(f"{name} {count}" for name, count in self.groups.items() if count)

    def line(self) -> str:
        """Everything in one line; it begins with a bar."""
        share = self.progress / 100
        full = int(share * BAR_CHARACTERS)
        parts = [
            f"[{'#' * full}{'-' * (BAR_CHARACTERS - full)}] {int(share * 100):3} %",
            f"{self.finished}/{self.total}",
        ]
        if self.rate and not self.is_done:
            parts.append(f"{self.rate:.1f}/s")
        if self.left is not None and not self.is_done:
            parts.append(f"{duration_text(self.left)} left")
        held = [f"held by: {self.held_by}"] if self.held_by else []
        return "  ".join([*parts, self.verdict.label.lower(), self.counts(), *held])


def read_report(batch: Batch, *, now: datetime) -> BatchReport:
    """Read a batch's counts and the causes of its dead letters."""
    snapshot = batch_snapshot(batch)
    counts = snapshot.apart
    groups: Counter[str] = Counter()
    for state in _SHOWN:
        groups[SHOWN[JobState.IN_PROGRESS if state in RUNNING else state].words] += counts[state]
    held = [lane.reasons[0].text for lane in holds_of_batch(batch.pk, most=1) if lane.reasons]
    return BatchReport(
        batch=batch,
        verdict=snapshot.verdict,
        groups=groups,
        finished=snapshot.finished,
        total=sum(snapshot.counts.values()),
        progress=snapshot.progress,
        rate=batch.rate_now,
        left=max(timedelta(0), snapshot.eta - now) if snapshot.eta else None,
        held_by=next(iter(held), ""),
        reasons=_reasons(batch),
    )


def duration_text(duration: timedelta) -> str:
    """`42 s`, `3 min 5 s`, `2 h 10 min`."""
    minutes, seconds = divmod(round(duration.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"


def _reasons(batch: Batch) -> list[CauseCount]:
    rows = (
        DeadLetter.objects.open()
        .filter(job__batch=batch, job__status=JobState.FAILED)
        .values("fingerprint")
        .annotate(count=Count("id"), code=Max("error_code"), message=Max("error_message"), remedy=Max("remediation"))
        .order_by("-count", "fingerprint")[:MAX_REASONS]
    )
    return [CauseCount(**row) for row in rows]
