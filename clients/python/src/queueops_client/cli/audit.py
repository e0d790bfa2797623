"""`queueops audit`: what people and keys changed in the project."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC
from typing import Any

import click
from rich.table import Table

from queueops_client.cli.session import MAX_LISTED, Session, command
from queueops_client.cli.words import clean
from queueops_client.producer import QueueOps
from queueops_client.records import AuditEntry

PAGE = 500  # the largest page of the server


@click.command()
@click.option("--actor", help="Who: user:<id>, key:<prefix>, …")
@click.option("--action", help="What, such as cancel_jobs.")
@click.option("--target", help="Of what, in full, such as 'job <id>'.")
@click.option("--after", "created_after", metavar="TIME", help="From then; a time with its offset.")
@click.option("--before", "created_before", metavar="TIME", help="Until then.")
@click.option("--oldest", is_flag=True, help="The oldest first, and none that comes later is missed by going on.")
@click.option("--cursor", help="With --oldest: go on from there; the last line of --json has it.")
@click.option("--limit", type=click.IntRange(1, MAX_LISTED), default=50, show_default=True)
@click.option("--all", "everything", is_flag=True, help="Without a limit.")
@command
def audit(session: Session, *, oldest: bool, limit: int, everything: bool, **where: Any) -> None:
    """
    List what people and keys changed in the project, newest first. The key needs the scope `audit`.

    With --json one a line: `--json --oldest --all` exports the trail.
    """
    if where["cursor"] and not oldest:
        raise click.UsageError("--cursor goes on from a cursor of --oldest: say both.")
    most = None if everything else limit
    with session.queue() as queue:
        found = _oldest(queue, most, where) if oldest else _newest(queue, most, where)
        if session.as_json:
            for entry in found:
                session.give({**entry.raw, "cursor": entry.cursor} if oldest else entry.raw)
            return
        shown = list(found)
    if not shown:
        session.say("There is none.")
        return
    table = Table(box=None, pad_edge=False)
    for name in ("when", "who", "what", "of", "why"):
        table.add_column(name, overflow="fold")
    for entry in shown:
        table.add_row(*map(clean, _cells(entry)))
    session.out.print(table)
    if len(shown) == most:
        session.note(f"There may be more than these {most}; see --limit and --all.")


def _newest(queue: QueueOps, most: int | None, where: dict[str, Any]) -> Iterator[AuditEntry]:
    return itertools.islice(queue.audit(**where, page_size=None if most is None else min(most, PAGE)), most)


def _oldest(queue: QueueOps, most: int | None, where: dict[str, Any]) -> Iterator[AuditEntry]:
    """Yield entries, with pages no longer than needed: only the last entry of a page has a cursor to go on from."""
    while most is None or most > 0:
        size = PAGE if most is None else min(most, PAGE)
        page = list(itertools.islice(queue.audit(**where, order="oldest", page_size=size), size))
        yield from page
        if len(page) < size:
            return
        where = {**where, "cursor": page[-1].cursor}
        most = None if most is None else most - size


def _cells(entry: AuditEntry) -> tuple[str, str, str, str, str]:
    at = f"{entry.created_at.astimezone(UTC):%Y-%m-%d %H:%M:%SZ}"
    return at, entry.actor, entry.action, entry.target, entry.reason
