"""`queueops schedules`: the repeated submissions of a project."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from datetime import UTC, datetime
from functools import wraps
from typing import Any, TypeVar, cast

import click
from rich.table import Table

from queueops_client.calls import Id
from queueops_client.cli.files import format_of, jobs_of, opened
from queueops_client.cli.session import Session, command
from queueops_client.cli.words import clean, plural
from queueops_client.errors import InvalidRequest, NotFound
from queueops_client.producer import QueueOps
from queueops_client.records import Fire, Schedule

FIRES = 10

Command = TypeVar("Command", bound=Callable[..., Any])


def figured(function: Command) -> Command:
    """Add the options of a schedule besides its name, times and jobs."""

    @click.option("--time-zone", help="Whose clock the cron text goes by, such as Europe/Berlin.")
    @click.option("--missed", type=click.Choice(["skip", "once", "all"]), help="What becomes of fires that are late.")
    @click.option("--most-missed", type=click.IntRange(min=1), help="With `all`: at most so many are made up for.")
    @click.option("--jitter", "jitter_seconds", type=click.IntRange(min=0), metavar="SECONDS", help="Late by less.")
    @click.option("--ends-at", help="It does not fire later; a time with its offset.")
    @click.option("--kind", default="", help="Of the jobs that do not name theirs.")
    @click.option("--reason", help="Kept in the audit trail.")
    @wraps(function)
    def wrapped(**given: Any) -> Any:
        names = ("time_zone", "missed", "most_missed", "jitter_seconds", "ends_at", "reason")
        figures = {name: value for name in names if (value := given.pop(name)) is not None}
        return function(**given, figures=figures)

    return cast("Command", wrapped)


@click.group("schedules")
def schedules() -> None:
    """The project's repeated submissions. SCHEDULE is an id or a name."""


@schedules.command("list")
@command
def list_schedules(session: Session) -> None:
    """List schedules, newest first. With --json one a line."""
    with session.queue() as queue:
        if session.as_json:
            for row in queue.schedules():
                session.give(row.raw)
            return
        shown = list(queue.schedules())
    if not shown:
        session.say("There are none.")
        return
    table = Table(box=None, pad_edge=False)
    for name in ("name", "cron", "next", "last", "id"):
        table.add_column(name, overflow="fold", no_wrap=name == "id")  # an id in two lines cannot be copied
    for row in shown:
        cron = f"{row.cron} {row.time_zone}"
        last = f"{_shown(row.last_fire.due_at)} {row.last_fire.outcome}" if row.last_fire else "-"
        table.add_row(*map(clean, (row.name, cron, _next_of(row), last, str(row.id))))
    session.out.print(table)


@schedules.command()
@click.argument("schedule")
@command
def show(session: Session, *, schedule: str) -> None:
    """Show what SCHEDULE submits, when it fires, and what came of its last fires."""
    with session.queue() as queue:
        row = _found(queue, schedule)
        fires = list(itertools.islice(queue.fires(row), FIRES))
    if session.as_json:
        session.give({**row.raw, "fires": [fire.raw for fire in fires]})
        return
    table = Table.grid(padding=(0, 2))
    facts = {
        "schedule": row.id,
        "name": row.name,
        "cron": f"{row.cron} {row.time_zone}",
        "submits": f"{plural(len(row.jobs), 'job')}: {', '.join(sorted({str(job['kind']) for job in row.jobs}))}",
        "missed": f"all, at most {row.most_missed}" if row.missed == "all" else row.missed,
        "jitter": f"less than {row.jitter_seconds} s" if row.jitter_seconds else "",
        "ends": row.ends_at,
        "next": _next_of(row),
        "after it": "\n".join(map(_shown, row.next_due[1:])),
        "fires": "\n".join(_fire_line(fire) for fire in fires),
    }
    for name, value in facts.items():
        if value not in (None, ""):
            table.add_row(name, clean(str(value)))
    session.out.print(table)


@schedules.command()
@click.argument("name")
@click.argument("cron")
@click.argument("file")
@figured
@click.option("--dry-run", is_flag=True, help="Store nothing: say when it would fire.")
@command
def add(
    session: Session, *, name: str, cron: str, file: str, kind: str, dry_run: bool, figures: dict[str, Any]
) -> None:
    """
    Submit the jobs of FILE whenever CRON is due: 'minute hour day month weekday'. - is standard input.

    The file is as for `queueops submit`, with at most 1,000 jobs.
    """
    jobs = _read(file, kind)
    with session.queue() as queue:
        if dry_run:
            due = queue.preview_schedule(name, cron, jobs, **figures)
            session.show({"next_due": due}, "It would fire at\n" + "\n".join(map(_shown, due)))
            return
        made = queue.create_schedule(name, cron, jobs, **figures)
    session.show(made.raw, f"Schedule {made.id}. Next: {_next_of(made)}.")


@schedules.command()
@click.argument("schedule")
@click.option("--name", help="Another name.")
@click.option("--cron", help="Other times; they count from now on.")
@click.option("--file", help="Other jobs; - is standard input.")
@figured
@command
def change(
    session: Session,
    *,
    schedule: str,
    name: str | None,
    cron: str | None,
    file: str | None,
    kind: str,
    figures: dict[str, Any],
) -> None:
    """Change SCHEDULE; what is not given stays as it is."""
    if file is not None:
        figures["jobs"] = _read(file, kind)
    figures |= {name: value for name, value in (("name", name), ("cron", cron)) if value is not None}
    if not figures.keys() - {"reason"}:
        raise click.UsageError("Say what to change.")
    with session.queue() as queue:
        row = queue.change_schedule(_found(queue, schedule), **figures)
    session.show(row.raw, f"Schedule {row.name}: {row.cron} {row.time_zone}. Next: {_next_of(row)}.")


@schedules.command()
@click.argument("schedule")
@click.option("--reason", default="", help="Kept in the audit trail.")
@command
def pause(session: Session, *, schedule: str, reason: str) -> None:
    """Let SCHEDULE fire no more until it is resumed."""
    with session.queue() as queue:
        row = queue.pause_schedule(_found(queue, schedule), reason=reason)
    session.show(row.raw, f"Schedule {row.name} is paused.")


@schedules.command()
@click.argument("schedule")
@click.option("--reason", default="", help="Kept in the audit trail.")
@command
def resume(session: Session, *, schedule: str, reason: str) -> None:
    """Let SCHEDULE fire again from now on; nothing is made up for."""
    with session.queue() as queue:
        row = queue.resume_schedule(_found(queue, schedule), reason=reason)
    session.show(row.raw, f"Schedule {row.name} fires again. Next: {_next_of(row)}.")


@schedules.command("run")
@click.argument("schedule")
@click.option("--reason", default="", help="Kept in the audit trail.")
@command
def run_now(session: Session, *, schedule: str, reason: str) -> None:
    """Submit the jobs of SCHEDULE now, also while it is paused."""
    with session.queue() as queue:
        fire = queue.run_schedule(_found(queue, schedule), reason=reason)
    session.show(fire.raw, _fire_line(fire))


@schedules.command()
@click.argument("schedule")
@click.option("--reason", default="", help="Kept in the audit trail.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@command
def delete(session: Session, *, schedule: str, reason: str, yes: bool) -> None:
    """Delete SCHEDULE; what it has submitted goes on."""
    with session.queue() as queue:
        row = _found(queue, schedule)
        session.confirm(f"Delete schedule {row.name} ({row.cron} {row.time_zone})?", yes=yes)
        queue.delete_schedule(row, reason=reason)
    session.show({"deleted": True}, f"Schedule {row.name} is deleted.")


def _found(queue: QueueOps, given: Id) -> Schedule:
    """Find a schedule by its id, or else by its name."""
    try:
        return queue.schedule(given)
    except InvalidRequest:
        row = next(iter(queue.schedules(name=given)), None)
    if row is None:
        raise NotFound("not_found", f"There is no schedule named {given}.", status=404)
    return row


def _read(file: str, kind: str) -> list[dict[str, Any]]:
    with opened(file) as source:
        return list(jobs_of(source, kind=kind, file_format=format_of(file), places=[]))


def _next_of(row: Schedule) -> str:
    if row.paused:
        return "paused"
    return "never again" if row.next_fire_at is None else _shown(row.next_fire_at)


def _fire_line(fire: Fire) -> str:
    what = fire.job_id or fire.batch_id or f"{fire.error_code} {fire.error_message}".strip()
    return f"{_shown(fire.due_at)} {fire.outcome} {what}".rstrip()


def _shown(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%MZ}"
