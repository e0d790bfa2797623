"""`queueops watch`: live in a terminal, line by line elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from types import TracebackType
from typing import Any, Protocol, Self

import click
from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from queueops_client.calls import Subject, Target
from queueops_client.cli.session import ENDED_WITH_FAILURES, Seconds, Session, command
from queueops_client.cli.words import (
    batch_line,
    clean,
    counted,
    forecast,
    job_line,
    rate,
    scheduled_until,
    verdict_words,
)
from queueops_client.producer import QueueOps
from queueops_client.records import Batch, Job, Operation
from queueops_client.watching import PATIENCE_SECONDS, Update

LINE_SECONDS = 5.0  # the least time between two lines, without a terminal
REFRESHES_PER_SECOND = 4


@click.command()
@click.argument("target", metavar="ID")
@click.option("--timeout", type=Seconds(min=0), metavar="SECONDS", help="Give up after so long; code 5.")
@command
def watch(session: Session, *, target: str, timeout: float | None) -> int:
    """
    Watch the batch or job ID until it has ended.

    Ends with code 3 if it has failures. It goes on if this is interrupted, and may be watched again.
    """
    with session.queue() as queue:
        return follow(session, queue, target, timeout=timeout)


def follow(
    session: Session, queue: QueueOps, target: Target, *, timeout: float | None = None, quietly: bool = False
) -> int:
    """
    Show a target until it ends; return the exit code.

    Args:
        quietly: Whether to show only the end.
    """
    name = getattr(target, "id", target)
    try:
        if quietly:
            latest: Subject = queue.wait(target, timeout)
            if session.as_json:
                session.give(latest.raw)
        else:
            updates = queue.watch(target, timeout=timeout, events=session.as_json, patience_seconds=PATIENCE_SECONDS)
            latest = _shown(session, updates)
    except KeyboardInterrupt:
        session.note(f"\nIt goes on without you. Come back with: queueops watch {name}")
        return 130
    return _end(session, latest)


def _shown(session: Session, updates: Iterator[Update]) -> Subject:
    screen: _Screen = _Bars(session) if session.out.is_terminal and not session.as_json else _Lines(session)
    with screen:
        for update in updates:
            screen.show(update)
            latest = update.subject
    return latest


def _end(session: Session, subject: Subject) -> int:
    if isinstance(subject, Batch):
        session.say(f"Batch {subject.id} has ended: {counted(subject.counts)}.")
        if subject.counts.get("failed"):
            session.note(f"See why with: queueops dead-letters list --batch {subject.id}")
        return ENDED_WITH_FAILURES if subject.failed else 0
    if isinstance(subject, Job):
        session.say(f"Job {subject.id} has ended: {job_line(subject)}.")
        return ENDED_WITH_FAILURES if subject.failed else 0
    return 0 if subject.status == "done" else ENDED_WITH_FAILURES


class _Screen(Protocol):
    def show(self, update: Update) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None: ...


class _Lines:
    """A line when something has changed, at most every few seconds; with --json every update."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._told = ""
        self._due = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, update: Update) -> None:
        if self._session.as_json:
            self._session.give(as_json(update))
            return
        text = f"not reached: {update.problem}" if update.kind == "lost" else line_of(update.subject)
        if text != self._told and (time.monotonic() >= self._due or update.subject.has_ended):
            self._session.say(f"{datetime.now().astimezone():%H:%M:%S} {text}")
            self._told, self._due = text, time.monotonic() + LINE_SECONDS


class _Bars:
    """A bar, counts, rate and forecast, which are redrawn in place."""

    def __init__(self, session: Session) -> None:
        self._update: Update | None = None
        self._live = Live(
            console=session.out, refresh_per_second=REFRESHES_PER_SECOND, get_renderable=self._drawn, transient=True
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, update: Update) -> None:
        self._update = update

    def _drawn(self) -> RenderableType:
        return drawing(self._update) if self._update else Text("Asking…")


def drawing(update: Update) -> RenderableType:
    subject = update.subject
    if isinstance(subject, Batch):
        state = counted(subject.counts, held_by_outage=subject.held_by_outage, scheduled=subject.scheduled)
        name, percent = subject.name or f"batch {subject.id}", subject.progress
        of = f"{subject.finished:,} of {sum(subject.counts.values()):,}"
        facts = [
            of,
            rate(subject.rate_per_second),
            forecast(subject.eta, subject.eta_earliest),
            scheduled_until(subject.scheduled_until),
            verdict_words(subject) or "paused" * subject.paused,
        ]
    elif isinstance(subject, Job):
        state, name = job_line(subject), f"{subject.kind} {subject.id}"
        percent = 100.0 if subject.has_ended else subject.progress or 0.0
        facts = [forecast(subject.eta)]
    else:
        state, name = f"{subject.done:,} of {subject.total:,}", f"{subject.action}"
        percent, facts = 100 * subject.done / (subject.total or 1), []
    failed = isinstance(subject, Batch) and subject.counts.get("failed", 0) > 0
    bar = Table.grid(padding=(0, 1))
    bar.add_row(
        Text(clean(name), style="bold", overflow="ellipsis", no_wrap=True),
        ProgressBar(total=100, completed=percent, width=30, complete_style="yellow" if failed else "green"),
        Text(f"{percent:5.1f} %"),
        Text(", ".join(fact for fact in facts if fact)),
    )
    return Group(bar, Text(f"  {clean(state)}"), connection(update))


def connection(update: Update) -> Text:
    """Return a text that says whether the shown state is live."""
    if update.kind == "lost":
        return Text(f"  not reached, trying again: {clean(update.problem)}", style="red")
    return Text("  live" if update.is_live else "  asked, not live", style="dim")


def line_of(subject: Subject) -> str:
    if isinstance(subject, Batch):
        return batch_line(subject)
    return job_line(subject) if isinstance(subject, Job) else operation_line(subject)


def operation_line(operation: Operation) -> str:
    return f"{operation.status}, {operation.done:,} of {operation.total:,}, {operation.skipped:,} left alone"


def as_json(update: Update) -> dict[str, Any]:
    """Return an update in the form of `watch --json`, which prints one a line."""
    return {
        "kind": update.kind,
        "live": update.is_live,
        "subject": update.subject.raw,
        "event": update.event.raw if update.event else None,
        "problem": update.problem or None,
    }
