"""`queueops windows`: when the project pauses by calendar."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from functools import wraps
from typing import Any, TypeVar, cast

import click
from rich.table import Table

from queueops_client.cli.session import Session, command
from queueops_client.cli.words import clean
from queueops_client.records import Window

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")  # a day's index is its number in the API

Command = TypeVar("Command", bound=Callable[..., Any])


def _days(_context: click.Context, _option: click.Parameter, given: str | None) -> list[int] | None:
    """Return days such as `sat,sun` as the API's numbers."""
    if given is None:
        return None
    said = [name.strip() for name in given.split(",")]
    names = [name.lower()[:3] for name in said]
    if unknown := [name for name in said if name.lower()[:3] not in DAYS]:
        raise click.BadParameter(f"{', '.join(unknown)!r} is no day; say {', '.join(DAYS)}.")
    return sorted({DAYS.index(name) for name in names})


def figured(function: Command) -> Command:
    """Add the options for when a window is open: once or weekly. A change to one removes the times of the other."""

    @click.option("--from", "begins_at", metavar="TIME", help="Once: from then; a time with its offset.")
    @click.option("--to", "ends_at", metavar="TIME", help="Once: until then.")
    @click.option("--on", "weekdays", callback=_days, metavar="DAYS", help="Weekly: on sat,sun.")
    @click.option("--since", metavar="CLOCK", help="Weekly: it begins at 22:00.")
    @click.option("--until", metavar="CLOCK", help="Weekly: it ends at the next 02:00.")
    @click.option("--time-zone", help="Weekly: whose clock, such as Europe/Berlin.")
    @click.option("--reason", help="Shown wherever work waits for it.")
    @wraps(function)
    def wrapped(**given: Any) -> Any:
        names = ("begins_at", "ends_at", "weekdays", "since", "until", "time_zone", "reason")
        figures = {name: value for name in names if (value := given.pop(name)) is not None}
        return function(**given, figures=figures)

    return cast("Command", wrapped)


@click.group("windows")
def windows() -> None:
    """When the project pauses for maintenance. WINDOW is an id."""


@windows.command("list")
@command
def list_windows(session: Session) -> None:
    """List windows, newest first; also those of services, kinds and everything. With --json one a line."""
    with session.queue() as queue:
        if session.as_json:
            for row in queue.windows():
                session.give(row.raw)
            return
        shown = list(queue.windows())
    if not shown:
        session.say("There are none.")
        return
    table = Table(box=None, pad_edge=False)
    for name in ("pauses", "when", "now or next", "reason", "id"):
        table.add_column(name, overflow="fold", no_wrap=name == "id")  # an id in two lines cannot be copied
    for row in shown:
        pauses = f"{row.scope} {row.key}".strip()
        table.add_row(*map(clean, (pauses, _when(row), _next_of(row), row.reason, str(row.id))))
    session.out.print(table)


@windows.command()
@figured
@command
def add(session: Session, *, figures: dict[str, Any]) -> None:
    """Pause the project once (--from, --to) or weekly (--on, --since, --until). Running jobs go on."""
    with session.queue() as queue:
        made = queue.create_window(**figures)
    session.show(made.raw, f"Window {made.id}: {_next_of(made)}.")


@windows.command()
@click.argument("window")
@figured
@command
def change(session: Session, *, window: str, figures: dict[str, Any]) -> None:
    """Change WINDOW; what is not given stays as it is."""
    if not figures:
        raise click.UsageError("Say what to change.")
    if figures.keys() & {"begins_at", "ends_at"}:
        figures = {"weekdays": [], "since": None, "until": None, **figures}
    elif "weekdays" in figures:
        figures = {"begins_at": None, "ends_at": None, **figures}
    with session.queue() as queue:
        row = queue.change_window(window, **figures)
    session.show(row.raw, f"Window {row.id}: {_next_of(row)}.")


@windows.command()
@click.argument("window")
@click.option("--reason", default="", help="Kept in the audit trail.")
@command
def end(session: Session, *, window: str, reason: str) -> None:
    """End WINDOW, which is open; a weekly one comes again."""
    with session.queue() as queue:
        row = queue.end_window(window, reason=reason)
    session.show(row.raw, f"Window {row.id}: {_next_of(row)}.")


@windows.command()
@click.argument("window")
@click.option("--reason", default="", help="Kept in the audit trail.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@command
def delete(session: Session, *, window: str, reason: str, yes: bool) -> None:
    """Delete WINDOW; what it holds may start."""
    with session.queue() as queue:
        row = queue.window(window)
        session.confirm(f"Delete the window {_when(row)}?", yes=yes)
        queue.delete_window(row, reason=reason)
    session.show({"deleted": True}, "The window is deleted.")


def _when(row: Window) -> str:
    if row.begins_at and row.ends_at:
        return f"{_shown(row.begins_at)} to {_shown(row.ends_at)}"
    days = ",".join(DAYS[day] for day in row.weekdays)
    return f"{days} {str(row.since)[:5]} to {str(row.until)[:5]} {row.time_zone}"


def _next_of(row: Window) -> str:
    if not row.next_times:
        return "over"
    span = row.next_times[0]
    return (
        f"open until {_shown(span.ends_at)}" if row.is_open else f"{_shown(span.begins_at)} to {_shown(span.ends_at)}"
    )


def _shown(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%MZ}"
