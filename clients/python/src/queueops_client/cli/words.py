"""Writes figures, times and other people's texts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from queueops_client.records import ENDED_STATES, Batch, Job

SECONDS_OF = (("d", 86_400), ("h", 3_600), ("min", 60))


def clean(text: str) -> str:
    """Return a text without characters that a terminal would take for a command: error messages come from providers."""
    return "".join(character if character.isprintable() or character == "\n" else "�" for character in text)


def duration(seconds: float) -> str:
    """`2 h 5 min`, `42 s`: the two largest units."""
    left, parts = max(0, round(seconds)), []
    for unit, size in SECONDS_OF:
        if left >= size:
            parts.append(f"{left // size} {unit}")
            left %= size
    if not parts or (len(parts) == 1 and parts[0].endswith("min") and left):
        parts.append(f"{left} s")
    return " ".join(parts[:2])


def forecast(eta: datetime | None, earliest: datetime | None = None) -> str:
    """`done in 5 min`, and the time by its speed so far if that differs much; empty: nothing is known."""
    if eta is None:
        return ""
    done = f"done in {_until(eta)}"
    return done if earliest is None else f"{done} ({_until(earliest)} at its speed so far)"


def scheduled_until(last: datetime | None) -> str:
    """`the last scheduled one may begin in 5 h`; empty when none is scheduled."""
    return "" if last is None else f"the last scheduled one may begin in {_until(last)}"


def _until(moment: datetime) -> str:
    return duration((moment - datetime.now(UTC)).total_seconds())


def counted(counts: Mapping[str, int], *, held_by_outage: int = 0, scheduled: int = 0) -> str:
    """
    `440 completed, 10 failed, 550 queued`: the states that have jobs, ended ones first.

    Jobs that an outage holds are apart from those that wait for quota; scheduled jobs are apart from queued ones.
    """
    if held_by_outage:
        limited = max(0, counts.get("rate_limited", 0) - held_by_outage)
        counts = {**counts, "rate_limited": limited, "held_by_an_outage": held_by_outage}
    if scheduled:
        counts = {**counts, "queued": max(0, counts.get("queued", 0) - scheduled), "scheduled": scheduled}
    known = sorted((state for state, count in counts.items() if count), key=lambda state: state not in ENDED_STATES)
    return ", ".join(f"{counts[state]:,} {state.replace('_', ' ')}" for state in known) or "no jobs"


def rate(per_second: float | None) -> str:
    if not per_second:
        return ""
    return f"{per_second:,.1f}/s" if per_second >= 1 else f"{per_second * 60:,.1f}/min"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def verdict_words(batch: Batch) -> str:
    """`running`, `held by a pause of it`; empty: the server states no verdict."""
    return batch.verdict.replace("_", " ") + (f" by {batch.held_by}" if batch.held_by else "")


def batch_line(batch: Batch) -> str:
    """The state of a batch in one line."""
    parts = [
        f"{batch.progress:.1f} %",
        f"{batch.finished:,} of {sum(batch.counts.values()):,}",
        counted(batch.counts, held_by_outage=batch.held_by_outage, scheduled=batch.scheduled),
    ]
    verdict = verdict_words(batch)
    if batch.has_ended:
        parts[0] = verdict or "ended"
    else:
        parts = [verdict, *parts]
        parts += [
            rate(batch.rate_per_second),
            "paused" if batch.paused and not verdict else "",
            forecast(batch.eta, batch.eta_earliest),
            scheduled_until(batch.scheduled_until),
        ]
    return ", ".join(part for part in parts if part)


def job_line(job: Job) -> str:
    """The state of a job in one line."""
    parts = [(job.state or "").replace("_", " ")]
    if not job.has_ended:
        parts += [f"{job.progress:g} %" if job.progress else "", job.progress_message or "", job.waiting_for or ""]
    if job.last_error_message and job.state != "completed":
        parts.append(f"{job.last_error_code}: {job.last_error_message}")
    return ", ".join(part for part in parts if part)
