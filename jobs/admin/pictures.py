"""Pictures of when jobs ended; templates/admin/jobs/picture.html draws them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.db.models import QuerySet

from jobs.models import Job
from jobs.services.explain.finish_histogram import pace_of
from jobs.states import SHOWN, JobState
from queueops.core.values.numbers import numbered
from queueops.screens import formatting


def picture_of(jobs: QuerySet[Job], marks: Iterable[datetime] = ()) -> dict[str, Any] | None:
    """
    Bars of the jobs that have ended, from the first end to the last; None while there is nothing to draw.

    Args:
        marks: When workers were started; starts between the first and last end are drawn.
    """
    pace = pace_of(jobs)
    if pace is None:
        return None
    highest = max(sum(bucket.values()) for bucket in pace.ended)
    bars: list[dict[str, Any]] = []
    for place, bucket in enumerate(pace.ended):
        base = 0.0
        for state in (JobState.COMPLETED, JobState.CANCELLED, JobState.FAILED):
            if count := bucket.get(state.value, 0):
                height = round(100 * count / highest, 2)
                bars.append(
                    {"x": place, "y": round(100 - base - height, 2), "height": height, "tone": SHOWN[state].tone}
                )
                base += height
    per_minute = highest / max(pace.bucket.total_seconds(), 0.001) * 60
    return {
        "bars": bars,
        "width": len(pace.ended),
        "marks": [
            {"x": round((mark - pace.since) / pace.bucket, 2), "at": formatting.ago(mark)}
            for mark in sorted(marks)
            if pace.since <= mark <= pace.until
        ],
        "since": formatting.ago(pace.since),
        "until": formatting.ago(pace.until),
        "bucket": formatting.duration(pace.bucket),
        "highest": numbered(highest, "job"),
        "peak": f"{per_minute:,.0f}",
    }
