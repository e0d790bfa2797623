"""`queueops allowance`: the use that each user of the project has for a month."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import click

from queueops_client.cli.session import Session, command
from queueops_client.errors import NotFound
from queueops_client.producer import QueueOps
from queueops_client.records import Allowance

Command = TypeVar("Command", bound=Callable[..., Any])


def figured(function: Command) -> Command:
    """Add the options for an allowance's figures besides its quota."""

    @click.option("--unit", type=click.Choice(["requests", "tokens"]), help="What is counted.")
    @click.option("--policy", type=click.Choice(["strict", "record_overage"]), help="At the quota.")
    @click.option("--time-zone", help="Where the month begins at midnight, such as Europe/Berlin.")
    @click.option("--reservation-seconds", type=int, help="After which a reservation is given back.")
    @click.option("--reason", help="Kept in the audit trail.")
    @wraps(function)
    def wrapped(**given: Any) -> Any:
        names = ("quota", "unit", "policy", "time_zone", "reservation_seconds", "reason")
        figures = {name: value for name in names if (value := given.pop(name, None)) is not None}
        return function(**given, figures=figures)

    return cast("Command", wrapped)


@click.group("allowance")
def allowance() -> None:
    """The use that each user of the project has for a calendar month."""


@allowance.command("show")
@command
def show(session: Session) -> None:
    """Show the allowance."""
    with session.queue() as queue:
        _told(session, _own(queue))


@allowance.command()
@click.argument("quota", type=int)
@figured
@command
def add(session: Session, *, figures: dict[str, Any]) -> None:
    """Give each user QUOTA requests or tokens a month."""
    with session.queue() as queue:
        _told(session, queue.create_allowance(**figures))


@allowance.command()
@click.option("--quota", type=int, help="For each user and month.")
@figured
@command
def change(session: Session, *, figures: dict[str, Any]) -> None:
    """Change the allowance, also for the current month; what is not given stays as it is."""
    if not figures.keys() - {"reason"}:
        raise click.UsageError("Say what to change.")
    with session.queue() as queue:
        _told(session, queue.change_allowance(_own(queue), **figures))


@allowance.command()
@click.option("--reason", required=True, help="Kept in the audit trail.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@command
def delete(session: Session, *, reason: str, yes: bool) -> None:
    """Delete the allowance; not while some of it is in use this month."""
    with session.queue() as queue:
        row = _own(queue)
        session.confirm(f"Delete the allowance of {row.project}, {row.quota:,} {row.unit}?", yes=yes)
        queue.delete_allowance(row, reason=reason)
    session.show({"deleted": True}, "The allowance is deleted.")


def _own(queue: QueueOps) -> Allowance:
    """
    Raises:
        NotFound: The project has no allowance.
    """
    for row in queue.allowances():
        return row
    raise NotFound("no_allowance", "The project has no allowance.", status=404)


def _told(session: Session, row: Allowance) -> None:
    zone, seconds = row.time_zone, row.reservation_seconds
    session.show(
        row.raw,
        f"{row.project}: {row.quota:,} {row.unit} for each user and month of {zone}, {row.policy},"
        f" reservations of {seconds} s.",
    )
    for warning in row.warnings:
        session.note(f"Mind: {warning}")
