"""`queueops status`, `results` and `cancel`."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from queueops_client.cli.rows import Row, cell_at, csv_to, no_formula, refuse_unwritable, written
from queueops_client.cli.session import Session, command
from queueops_client.cli.watch import line_of, operation_line
from queueops_client.cli.words import batch_line, clean, counted, job_line, plural
from queueops_client.errors import Conflict
from queueops_client.producer import QueueOps
from queueops_client.records import Batch, Job

OPEN_BATCHES = 10
OF_A_JOB = ("idempotency_key", "id", "state", "last_error_code")  # the first columns of results as CSV
OF_A_TABLE = (*OF_A_JOB, "cost_money")
PAYLOAD = "payload."  # before the names of the payload's members, as in a file that is submitted
FAILED = frozenset({"failed", "cancelled"})


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
    """Return the main reason why each waiting lane waits, a line each; empty: the jobs only wait for their turn."""
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
@click.option(
    "--column", "columns", multiple=True, metavar="PATH", help="As CSV, with this of the results, such as data.total."
)
@click.option("--csv", "as_csv", is_flag=True, help="As CSV, with the whole result as JSON unless --column says what.")
@click.option("--with-input", is_flag=True, help="With what went in; in a table a column a member, as payload.url.")
@click.option("--out", metavar="FILE", help="Write a table there instead: .csv, .tsv, .ndjson or .parquet.")
@command
def results(
    session: Session,
    *,
    batch: str,
    failed: bool,
    columns: tuple[str, ...],
    as_csv: bool,
    with_input: bool,
    out: str | None,
) -> None:
    """
    Print what became of each job of BATCH, one JSON object a line, in the order of submission.

    Jobs that have not ended come too, without a result; `state` tells.
    """
    if out is not None:
        refuse_unwritable(out)
    with session.queue() as queue:
        if with_input or out is not None:
            rows = queue.table(batch, columns=columns, with_input=with_input)
            wanted = [row for row in rows if not failed or row["state"] in FAILED]
            _table(session, wanted, as_csv=as_csv or bool(columns), out=out)
            return
        chosen = {path: path for path in columns} or {"result": ""}
        write = csv_to(sys.stdout, [*OF_A_JOB, *chosen]) if as_csv or columns else None
        for result in queue.results(batch):
            if failed and result.state not in FAILED:
                continue
            if write is None:
                session.give(result.raw)
                continue
            whole = queue.result(result) if result.stored_result is not None else result.result
            found = {name: no_formula(cell_at(whole, path) if path else whole) for name, path in chosen.items()}
            write({**{name: no_formula(result.raw.get(name)) for name in OF_A_JOB}, **found})


def _table(session: Session, rows: Sequence[Row], *, as_csv: bool, out: str | None) -> None:
    """Write rows of the server's table; as JSON lines, payloads stay nested."""
    ending = ("csv" if as_csv else "ndjson") if out is None else Path(out).suffix.lower().removeprefix(".")
    if ending in {"csv", "tsv", "parquet"}:
        rows = [_flat(row) for row in rows]
    columns = list(dict.fromkeys(name for row in rows for name in row)) or list(OF_A_TABLE)
    columns.sort(key=lambda name: (name not in OF_A_TABLE, not name.startswith(PAYLOAD)))
    printed: Callable[[Row], None] = csv_to(sys.stdout, columns) if out is None and as_csv else session.give
    with nullcontext(printed) if out is None else written(out, columns) as write:
        for row in rows:
            write({name: no_formula(value) for name, value in row.items()} if ending in {"csv", "tsv"} else row)


def _flat(row: Row) -> Row:
    payload = row.get("payload")
    members = {PAYLOAD + name: value for name, value in payload.items()} if isinstance(payload, dict) else {}
    return {**{name: value for name, value in row.items() if name != "payload"}, **members}


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
