"""`queueops status`, `results` and `cancel`."""

from __future__ import annotations

import itertools
from typing import Any

import click
from rich.table import Table

from queueops_client.cli.session import Session, command
from queueops_client.cli.watch import line_of, operation_line
from queueops_client.cli.words import batch_line, clean, counted, job_line, plural
from queueops_client.errors import Conflict
from queueops_client.producer import QueueOps
from queueops_client.records import Batch, Job

OPEN_BATCHES = 10


@click.command()
@click.argument("target", metavar="[ID]", required=False)
@command
def status(session: Session, *, target: str | None) -> None:
    """How the batch or job ID is; without ID, the project and its open batches."""
    with session.queue() as queue:
        if target is None:
            _project(session, queue)
            return
        subject = queue.find(target)
        if session.as_json:
            session.give(subject.raw)
            return
        facts = _facts_of_batch(subject, queue) if isinstance(subject, Batch) else _facts_of_job(subject)
    table = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        if value not in (None, ""):
            table.add_row(name, clean(str(value)))
    session.out.print(table)


def _project(session: Session, queue: QueueOps) -> None:
    project = queue.project()
    counts = counted(project.counts, scheduled=project.scheduled)
    batches = list(itertools.islice(queue.batches(finished=False), OPEN_BATCHES))
    session.show(
        {"project": project.raw, "batches": [batch.raw for batch in batches]},
        f"Project {project.name or project.id}{', paused' * project.paused}: {counts}",
    )
    for batch in batches:
        session.say(f"{batch.id}  {batch.name or '-'}  {batch_line(batch)}")


def _held_by(queue: QueueOps, batch: Batch) -> str:
    """Return what most of its waiting jobs wait for, a line each; empty: they wait for nothing but their turn."""
    lanes = [] if batch.has_ended else queue.waiting(batch)
    texts = [lane["reasons"][0]["text"] for lane in lanes if lane["reasons"]]
    return "\n".join(dict.fromkeys(texts))


def _facts_of_batch(batch: Batch, queue: QueueOps) -> dict[str, Any]:
    return {
        "batch": batch.id,
        "name": batch.name,
        "state": batch_line(batch),
        "held by": _held_by(queue, batch),
        "submitted": batch.created_at,
        "ended": batch.finished_at,
    }


def _facts_of_job(job: Any) -> dict[str, Any]:
    return {
        "job": job.id,
        "kind": job.kind,
        "state": line_of(job),
        "batch": job.batch,
        "attempts": job.raw.get("attempts"),
        "submitted": job.created_at,
        "due": job.scheduled_at,
        "ended": job.finished_at,
        "result": job.result,
    }


@click.command()
@click.argument("batch", metavar="BATCH")
@click.option("--failed", is_flag=True, help="Only jobs that failed or were cancelled.")
@command
def results(session: Session, *, batch: str, failed: bool) -> None:
    """
    Print what became of each job of BATCH, one JSON object a line, in the order of submission.

    Jobs that have not ended come too, without a result; `state` tells.
    """
    with session.queue() as queue:
        for result in queue.results(batch):
            if not failed or result.state in {"failed", "cancelled"}:
                session.give(result.raw)


@click.command()
@click.argument("target", metavar="ID")
@click.option("--reason", default="", help="Kept with the jobs.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@command
def cancel(session: Session, *, target: str, reason: str, yes: bool) -> None:
    """Cancel the batch or job ID: what has not ended of it."""
    with session.queue() as queue:
        subject = queue.find(target)
        if isinstance(subject, Job):
            session.confirm(f"Cancel job {subject.id} ({job_line(subject)})?", yes=yes)
            job = queue.cancel_job(subject, reason=reason)
            session.show(job.raw, f"Job {job.id} is {job.state}.")
            return
        if not isinstance(subject, Batch) or subject.has_ended:
            raise Conflict("wrong_state", "The batch has ended.", status=409)
        left = sum(subject.counts.values()) - subject.finished
        session.confirm(f"Cancel {plural(left, 'job')} of batch {subject.name or subject.id}?", yes=yes)
        operation = queue.wait(queue.cancel_batch(subject, reason=reason))
        session.show(operation.raw, f"Cancelling: {operation_line(operation)}.")


@click.command("go-on")
@click.argument("target", metavar="ID")
@click.option("--reason", default="", help="Kept in the audit trail.")
@command
def go_on(session: Session, *, target: str, reason: str) -> None:
    """Let the batch or job ID go on all the same that waits for others."""
    with session.queue() as queue:
        subject = queue.find(target)
        if isinstance(subject, Job):
            told = queue.go_on_job(subject, reason=reason).raw
        elif isinstance(subject, Batch):
            told = queue.go_on_batch(subject, reason=reason).raw
        else:
            raise Conflict("wrong_state", "An operation waits for no others.", status=409)
        session.show(told, f"{subject.id} goes on.")
