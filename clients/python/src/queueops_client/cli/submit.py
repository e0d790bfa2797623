"""`queueops submit`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import click
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from queueops_client.cli.estimate import REFUSED, show_forecast, tell_refused
from queueops_client.cli.files import STANDARD_INPUT, format_of, job_in, jobs_of, opened
from queueops_client.cli.session import Seconds, Session, command
from queueops_client.cli.watch import follow
from queueops_client.cli.words import plural
from queueops_client.errors import BatchRejected
from queueops_client.records import SubmittedBatch
from queueops_client.specs import OnFailure


@click.command()
@click.argument("file", default=STANDARD_INPUT)
@click.option("--kind", default="", help="Of the jobs that do not name theirs.")
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["ndjson", "csv", "json"]),
    help="By default what the file's name ends with, else ndjson: one job a line.",
)
@click.option("--name", default="", help="The batch's.")
@click.option("--tag", "tags", multiple=True, help="Of the batch, to find it by; may be given several times.")
@click.option("--partial", is_flag=True, help="Submit the valid jobs and report the others.")
@click.option(
    "--start-interval",
    type=Seconds(min=0),
    default=0.0,
    metavar="SECONDS",
    help="Start the jobs so far apart.",
)
@click.option("--after", multiple=True, metavar="ID", help="A job or batch that must end first; several times.")
@click.option(
    "--on-failure",
    type=click.Choice(["cancel", "run", "hold"]),
    help="When one of those does not succeed: cancel (the default), run all the same, or hold until a requeue does.",
)
@click.option("--on-finish", metavar="JSON", help="A job to carry out when all have ended; @FILE reads it from a file.")
@click.option(
    "--guard",
    type=click.IntRange(0, 100),
    metavar="PERCENT",
    help="Pause it when so many percent of its first jobs fail for good with one code; 0: never.",
)
@click.option("--guard-first", type=click.IntRange(1, 1000), metavar="JOBS", help="How many those first jobs are.")
@click.option("--idempotency-key", help="Makes a repeat harmless for 7 days, if the file is the same.")
@click.option("--dry-run", is_flag=True, help="Submit nothing: say what it would cost, and when it would be done.")
@click.option("--watch", "and_watch", is_flag=True, help="Watch the batch to its end; code 3 if it has failures.")
@click.option("--wait", "and_wait", is_flag=True, help="The same, without showing it.")
@command
def submit(
    session: Session,
    *,
    file: str,
    kind: str,
    file_format: str | None,
    name: str,
    tags: tuple[str, ...],
    partial: bool,
    start_interval: float,
    after: tuple[str, ...],
    on_failure: OnFailure | None,
    on_finish: str | None,
    guard: int | None,
    guard_first: int | None,
    idempotency_key: str | None,
    dry_run: bool,
    and_watch: bool,
    and_wait: bool,
) -> int:
    """
    Submit the jobs of FILE as one batch; - or nothing: standard input.

    A job is an object as the API takes it: kind, payload, priority, idempotency_key, and so on. In CSV a column is
    such a field or a place in the payload: payload.url for text, payload.values:json for JSON.
    """
    callback = None if on_finish is None else job_in(on_finish)
    places: list[str] = []
    with session.queue() as queue:
        with opened(file) as source, _progress(session) as counted:
            jobs = jobs_of(source, kind=kind, file_format=file_format or format_of(file), places=places)
            if dry_run:
                told = queue.forecast(
                    counted(jobs),
                    partial=partial,
                    start_interval_seconds=start_interval,
                    after=after,
                    on_finish=callback,
                )
                return show_forecast(session, told, places)
            try:
                batch = queue.submit_many(
                    counted(jobs),
                    name=name,
                    tags=tags,
                    partial=partial,
                    start_interval_seconds=start_interval,
                    after=after,
                    on_failure=on_failure,
                    on_finish=callback,
                    guard_percent=guard,
                    guard_first=guard_first,
                    idempotency_key=idempotency_key,
                )
            except BatchRejected as refused:
                if session.as_json:
                    raise
                session.note(f"queueops: {refused.message} ({refused.code})")
                tell_refused(session, refused.errors, int(refused.details["error_count"]), places)
                return REFUSED
        _tell(session, batch, places, follows=and_watch or and_wait)
        if not and_watch and not and_wait:
            return 0
        followed = batch.known_batches if not batch.accepted and batch.known_batches else [batch.id]
        return max(follow(session, queue, one, quietly=not and_watch) for one in followed)


class _progress:  # noqa: N801 (used like the function that it would be)
    """Shows how many jobs were read, and that they are being sent."""

    def __init__(self, session: Session) -> None:
        self._bar = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            console=session.err,
            transient=True,
            disable=session.as_json or not session.err.is_terminal,
        )

    def __enter__(self) -> Any:
        self._bar.start()
        task = self._bar.add_task("Reading")

        def counted(jobs: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
            number = 0
            for number, job in enumerate(jobs, 1):
                if number % 100 == 0:
                    self._bar.update(task, description=f"Reading: {plural(number, 'job')}")
                yield job
            self._bar.update(task, description=f"Submitting {plural(number, 'job')}")

        return counted

    def __exit__(self, *_: object) -> None:
        self._bar.stop()


def _tell(session: Session, batch: SubmittedBatch, places: Sequence[str], *, follows: bool) -> None:
    session.show(batch.raw, f"Batch {batch.id}: {plural(batch.accepted, 'job')} accepted.")
    if batch.duplicates:
        session.note(f"{plural(batch.duplicates, 'duplicate')} left out: their idempotency_key exists already.")
    if batch.pending:
        replaced = f", {batch.replaced:,} of these with other work for it" if batch.replaced else ""
        session.note(f"{plural(batch.pending, 'job')} left out{replaced}: one with their unique_key has not ended.")
    if batch.known_batches and not batch.accepted:
        session.note(f"All of it is known: its jobs are in {', '.join(map(str, batch.known_batches))}.")
    if batch.error_count:
        tell_refused(session, batch.errors, batch.error_count, places)
    if not follows:
        session.say(f"Watch it with: queueops watch {batch.id}")
