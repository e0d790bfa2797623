"""`queueops usage` and `flush`: a user's allowance, and what the outbox of an app on this machine holds."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from queueops_client.cli.session import Seconds, Session, command
from queueops_client.cli.words import duration, plural
from queueops_client.errors import BadConfiguration
from queueops_client.transport import Transport, base_url_of
from queueops_client.usage.clock import ServerClock
from queueops_client.usage.file import default_path
from queueops_client.usage.flush import Pace
from queueops_client.usage.identity import is_key
from queueops_client.usage.outbox import Outbox
from queueops_client.usage.report import Report, report
from queueops_client.usage.tracker import UsageTracker

OUTBOX = click.option(
    "--outbox", type=click.Path(dir_okay=False, path_type=Path), help="The outbox's file, if not the usual one."
)


@click.command()
@click.option("--user", metavar="UUID", help="Whose allowance; with a user's token: the user's own.")
@OUTBOX
@command
def usage(session: Session, *, user: str | None, outbox: Path | None) -> None:
    """How much of the month's allowance a user has left, and what waits in the outbox on this machine."""
    key, path = session.key(), _path(session, outbox)
    if user is None and is_key(key) and not path.exists():
        raise BadConfiguration("With a producer key, say whose allowance: --user.")
    standing = None
    if user is not None or not is_key(key):
        with Transport(session.address(), key, retry=session.retry()) as transport:
            standing = transport.request("GET", "/api/v1/usage/me/", params={"user_id": user}).body
    held = _report(path) if path.exists() else None
    if session.as_json:
        session.give({"standing": standing, "outbox": held and asdict(held)})
        return
    if standing:
        _say_standing(session, standing)
    if held:
        _say_report(session, held)
    else:
        session.say(f"No outbox at {path}.")


@click.command()
@OUTBOX
@click.option("--timeout", type=Seconds(min=0), default=30.0, show_default=True, metavar="SECONDS")
@command
def flush(session: Session, *, outbox: Path | None, timeout: float) -> None:
    """Send what waits in the outbox on this machine."""
    path = _path(session, outbox)
    if not path.exists():
        raise BadConfiguration(f"There is no outbox at {path}.")
    with UsageTracker(session.address(), session.key(), path=path, background=False) as tracker:
        done = tracker.flush(timeout)
    session.show(asdict(done), f"{done.sent:,} sent, {done.rejected:,} rejected, {done.pending:,} still wait.")


def _path(session: Session, given: Path | None) -> Path:
    path = given or default_path(base_url_of(session.address()))
    try:
        path.stat()  # from Python 3.14 on, exists() is also False if a directory of the path may not be searched
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:
        raise BadConfiguration(f"The outbox cannot be opened: {error.strerror}.") from error
    return path


def _report(path: Path) -> Report:
    """Return the outbox's report without sending anything."""
    clock = ServerClock()
    outbox = Outbox(path, clock=clock)
    try:
        return report(outbox, clock, Pace())
    finally:
        outbox.close()


def _say_standing(session: Session, standing: dict[str, Any]) -> None:
    session.say(
        f"{standing['month']}: {standing['used']:,} of {standing['quota']:,} {standing['unit']} used, "
        f"{standing['reserved']:,} reserved, {standing['remaining']:,} left; begins anew {standing['resets_at']}."
    )
    if standing["overage"]:
        session.say(f"{standing['overage']:,} beyond the allowance.")


def _say_report(session: Session, held: Report) -> None:
    oldest = f", the oldest {duration(held.oldest_age_seconds)} old" if held.pending else ""
    session.say(f"Outbox {held.path}: {plural(held.pending, 'event')} to be sent{oldest}.")
    if held.intents:
        session.say(f"{plural(len(held.intents), 'call')} cut off by crashes:")
        for intent in held.intents:
            session.say(f"  {intent.event_id}  {intent.started_at:%Y-%m-%d %H:%M}  {intent.service or '-'}")
    if held.rejected:
        session.say(f"{plural(len(held.rejected), 'event')} that the server will not count:")
        for row in held.rejected:
            session.say(f"  {row.event_id}  {row.reason}: {row.message}")
