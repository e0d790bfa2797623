"""`queueops dead-letters`: jobs that failed for good, and how to requeue or discard them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import click
from rich.table import Table

from queueops_client.cli.session import MAX_LISTED, Seconds, Session, command
from queueops_client.cli.watch import operation_line
from queueops_client.cli.words import clean, plural
from queueops_client.producer import QueueOps
from queueops_client.records import Moved, Operation

COUNTED = 1_000  # beyond so many letters, a question says "more than"

Command = TypeVar("Command", bound=Callable[..., Any])


def narrowed(function: Command) -> Command:
    """Add the options that choose among the dead letters."""

    @click.option("--batch", help="Of one batch.")
    @click.option("--kind", help="Of one kind of job.")
    @click.option("--service", help="Of one service.")
    @click.option("--error-code", help="Such as http_404.")
    @click.option("--fingerprint", help="Of one cause.")
    @wraps(function)
    def wrapped(*, batch: Any, kind: Any, service: Any, error_code: Any, fingerprint: Any, **given: Any) -> Any:
        chosen = {
            "batch": batch,
            "kind": kind,
            "service": service,
            "error_code": error_code,
            "fingerprint": fingerprint,
        }
        return function(**given, where={name: value for name, value in chosen.items() if value is not None})

    return cast("Command", wrapped)


@click.group("dead-letters")
def letters() -> None:
    """Jobs that failed for good: list, requeue or discard them."""


@letters.command("list")
@narrowed
@click.option("--all", "with_closed", is_flag=True, help="Also those requeued or discarded.")
@click.option("--limit", type=click.IntRange(1, MAX_LISTED), default=50, show_default=True)
@command
def list_letters(session: Session, *, where: dict[str, str], with_closed: bool, limit: int) -> None:
    """List dead letters, newest first. With --json one a line, with payloads."""
    with session.queue() as queue:
        rows = queue.dead_letters(**where, open=None if with_closed else True)
        found = itertools.islice(rows, limit)
        if session.as_json:
            for letter in found:
                session.give(letter.raw)
            return
        shown = list(found)
    if not shown:
        session.say("There are none.")
        return
    table = Table(box=None, pad_edge=False)
    for name in ("id", "kind", "error", "what to do"):
        table.add_column(name, overflow="fold", no_wrap=name == "id")  # an id in two lines cannot be copied
    for letter in shown:
        error = f"{letter.error_code}: {letter.error_message}"
        after = letter.resolution or letter.remediation or ""
        table.add_row(*map(clean, (str(letter.id), letter.kind, error, after)))
    session.out.print(table)
    if len(shown) == limit:
        session.note(f"There may be more than these {limit}; see --limit.")


@letters.command()
@click.argument("ids", nargs=-1, metavar="[ID]...")
@narrowed
@click.option("--everything", is_flag=True, help="All open dead letters of the project.")
@click.option("--spread", type=Seconds(min=0), default=0.0, metavar="SECONDS", help="Spread the starts over this.")
@click.option("--priority", type=click.Choice(["urgent", "normal", "low"]))
@click.option("--note", default="", help="Kept with the dead letters.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@command
def requeue(session: Session, *, spread: float, priority: Any, note: str, **chosen: Any) -> None:
    """Submit the failed jobs again: the dead letters ID..., or the open ones that fit the options."""
    options: dict[str, Any] = {"priority": priority, "spread_seconds": spread, "note": note}
    _act(
        session,
        "Requeue",
        lambda queue, ids: queue.requeue(ids, **options),
        lambda queue, where: queue.requeue_where(where, **options),
        **chosen,
    )


@letters.command()
@click.argument("ids", nargs=-1, metavar="[ID]...")
@narrowed
@click.option("--everything", is_flag=True, help="All open dead letters of the project.")
@click.option("--reason", required=True, help="Why; kept with the dead letters.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@command
def discard(session: Session, *, reason: str, **chosen: Any) -> None:
    """Close dead letters for good: ID..., or the open ones that fit the options. There is no way back."""
    _act(
        session,
        "Discard",
        lambda queue, ids: queue.discard(ids, reason=reason),
        lambda queue, where: queue.discard_where(where, reason=reason),
        **chosen,
    )


def _act(
    session: Session,
    verb: str,
    by_ids: Callable[[QueueOps, list[str]], Moved],
    by_filter: Callable[[QueueOps, dict[str, str]], Operation],
    *,
    ids: tuple[str, ...],
    where: dict[str, str],
    everything: bool,
    yes: bool,
) -> None:
    if sum(map(bool, (ids, where, everything))) != 1:
        raise click.UsageError("Name dead letters by their ids, narrow them by options, or say --everything.")
    with session.queue() as queue:
        if ids:
            session.confirm(f"{verb} {plural(len(ids), 'dead letter')}?", yes=yes)
            moved = by_ids(queue, list(ids))
            text = f"{plural(len(moved.moved), 'dead letter')} done, {len(moved.unmoved)} left alone."
            session.show(moved.raw, text)
            if not moved.moved:
                click.get_current_context().exit(1)
            return
        found = sum(1 for _ in itertools.islice(queue.dead_letters(**where, open=True), COUNTED + 1))
        number = plural(found, "dead letter") if found <= COUNTED else f"more than {COUNTED:,} dead letters"
        if not found:
            session.show({"total": 0}, "There are none.")
            return
        session.confirm(f"{verb} {number}?", yes=yes)
        named = {"batch_id" if name == "batch" else name: value for name, value in where.items()}
        operation = queue.wait(by_filter(queue, named))
    session.show(operation.raw, f"{verb}: {operation_line(operation)}.")
