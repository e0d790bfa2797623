"""
The times at which a schedule fires, computed from its cron text, time zone and end alone: everybody computes the same.

The library cronsim reads the cron text as Debian's cron does, here with a clock that is never moved. A schedule that
names an hour fires once a day. If the clock skips that hour, the schedule fires at the first minute after the gap; if
the clock shows the hour twice, it fires in the first. A schedule for every few minutes, or for every hour (`*`), goes
by the time that really passes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError
from django.db import models

from queueops.core.postgres.zones import zone_names

MISSED_AFTER = timedelta(seconds=60)  # a fire that is later than this was missed
MAX_CRON_LENGTH = 100
MAX_JITTER_SECONDS = 3600
MAX_MISSED_FIRES = 100  # missed fires that are made up for at once
MAX_COUNTED = 1000  # fires that are left out are counted up to this number
FIELDS = 5
A_MINUTE = timedelta(minutes=1)
MAX_MOVE = timedelta(hours=3)  # no clock is moved further, except when a country crosses the date line
TICK = timedelta(microseconds=1)
SHARES = 2**32


FIELD_NAMES = ("minute", "hour", "day of the month", "month", "day of the week")
MAX_STEPS = (60, 24, 31, 12, 7)  # of each field
FOR_WORDS = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


class Missed(models.TextChoices):
    """How a schedule makes up for fires that nobody made in time."""

    SKIP = "skip", "are left out"
    ONCE = "once", "are made up for by one"
    ALL = "all", "are made up for one by one"


class BadTimes(ValueError):
    """Times that cannot be used. `field`: the field at fault, such as `cron`, `time_zone` or `ends_at`."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


@dataclass(frozen=True, slots=True)
class Fire:
    """
    Attributes:
        due_at: The time by the cron text.
        fire_at: The time with jitter, before the next fire is due.
    """

    due_at: datetime
    fire_at: datetime


@dataclass(frozen=True, slots=True)
class Due:
    """
    Attributes:
        fires: The fires to be made now, the oldest first.
        left_out: How many more fires were missed, counted up to MAX_COUNTED.
        last_due_at: The newest time of all these fires; None: no fire is due.
        following: The next fire; None: there is none.
    """

    fires: list[Fire]
    left_out: int
    last_due_at: datetime | None
    following: Fire | None


def check_zone(name: str) -> None:
    """
    Raises:
        BadTimes: There is no such zone.
    """
    if name not in zone_names():
        raise BadTimes("time_zone", "There is no such time zone; write one such as Europe/Berlin.")


@dataclass(frozen=True, slots=True)
class Times:
    """
    Attributes:
        seed: The seed of the jitter: every process computes the same jitter for a fire.
        ends_at: The last moment at which a fire may be due.
    """

    cron: str
    time_zone: str = "UTC"
    jitter_seconds: int = 0
    ends_at: datetime | None = None
    seed: str = ""

    def check(self, now: datetime) -> Fire:
        """
        Return the next fire.

        Raises:
            BadTimes: The cron text or the zone cannot be read, or the schedule would never fire.
        """
        check_zone(self.time_zone)
        if len(self.cron.split()) != FIELDS or len(self.cron) > MAX_CRON_LENGTH:
            raise BadTimes("cron", _meant(self.cron))
        try:
            endless = Times(self.cron, self.time_zone)
            if next(endless.after(now), None) is None:
                raise BadTimes("cron", "It never fires: there is no such day.")
        except CronSimError:
            raise BadTimes("cron", _unread(self.cron)) from None
        _check_steps(self.cron)
        following = next(self.after(now), None)
        if following is None:
            raise BadTimes("ends_at", "It ends before it fires.")
        return following

    def after(self, moment: datetime) -> Iterator[Fire]:
        """Yield the fires due after a moment, endlessly if there is no `ends_at`."""
        for due_at, next_due_at in pairwise(self._dues(moment)):
            if self.ends_at is not None and due_at > self.ends_at:
                return
            yield Fire(due_at, due_at + self._jitter(due_at, next_due_at))

    def due(self, *, since: datetime, now: datetime, missed: str, most: int = 1) -> Due:
        """
        Return the fires to be made now.

        Args:
            since: When the first fire is due that was not made yet.
            missed: A value of Missed.
            most: How many missed fires, the newest, are made with `all`.
        """
        most = most if missed == Missed.ALL else 1
        upto = now if self.ends_at is None else min(now, self.ends_at)
        span = timedelta(hours=1)
        while True:  # begin with a short span: after a long time, most missed fires would be computed for nothing
            start = max(since - TICK, upto - span)
            found = [fire for fire in self._upto(start, upto) if fire.fire_at <= now]  # jitter may put off the last
            if len(found) >= most or start < since:
                break
            span *= 4
        if not found:
            return Due([], 0, None, next(self.after(since - TICK), None))
        taken = found[-most:]
        if missed == Missed.SKIP:
            taken = [fire for fire in taken if now - fire.fire_at < MISSED_AFTER]
        counted = len(found) if start < since else self._count(since, found[-1].due_at)
        last = found[-1].due_at
        left_out = min(MAX_COUNTED, counted - len(taken))
        return Due(taken, left_out, last, next(self.after(last), None))

    def _upto(self, start: datetime, upto: datetime) -> Iterator[Fire]:
        return takewhile(lambda fire: fire.due_at <= upto, self.after(start))

    def _count(self, since: datetime, upto: datetime) -> int:
        return sum(1 for _ in islice(self._upto(since - TICK, upto), MAX_COUNTED + MAX_MISSED_FIRES))

    def _dues(self, moment: datetime) -> Iterator[datetime]:
        latest, again = moment, list[datetime]()
        near = (moment - MAX_MOVE, moment, moment + MAX_MOVE)
        begun, start, soon = (at.astimezone(ZoneInfo(self.time_zone)) for at in near)
        if not begun.utcoffset() == start.utcoffset() == soon.utcoffset():
            start = begun  # near a move of the clock: it may show an earlier time again
        for wall in CronSim(self.cron, start.replace(tzinfo=None)):
            for due_at in self._readings(wall, again):
                if due_at > latest:  # several fires in a gap become one, and a fire before `moment` is left out
                    yield due_at
                    latest = due_at

    def _readings(self, wall: datetime, again: list[datetime]) -> Iterator[datetime]:
        """
        Yield, in order, the moments when a clock on the wall shows a time: none in a gap, two if the clock is set back.

        Do not ask the library: where a clock is moved by half an hour, it leaves out a whole hour.

        Args:
            again: The second moments of earlier times that are still to come; changed in place.
        """
        first, second = self._both(wall)
        goes_by_time = any(field.startswith("*") for field in self.cron.split()[:2])
        if first > second and goes_by_time:
            return
        while first > second:  # the time is in a gap: a schedule that names an hour fires at the gap's end
            wall += A_MINUTE
            first, second = self._both(wall)
        while again and again[0] < first:
            yield again.pop(0)
        yield first
        if first < second and goes_by_time:
            again.append(second)

    def _both(self, wall: datetime) -> tuple[datetime, datetime]:
        """Return the moment by the clock before its move and by the clock after: two, if it is shown twice or never."""
        before, after = (wall.replace(tzinfo=ZoneInfo(self.time_zone), fold=fold) for fold in (0, 1))
        return before.astimezone(UTC), after.astimezone(UTC)

    def _jitter(self, due_at: datetime, next_due_at: datetime) -> timedelta:
        most = min(self.jitter_seconds, int((next_due_at - due_at).total_seconds()))
        digest = hashlib.sha256(f"{self.seed} {due_at.isoformat()}".encode()).digest()
        return timedelta(seconds=int.from_bytes(digest[:4]) * most // SHARES)


def _check_steps(cron: str) -> None:
    """
    Refuse a step beyond its field. Cron begins each field anew, so */90 is once an hour, which nobody means by it.

    Raises:
        BadTimes
    """
    for name, most, text in zip(FIELD_NAMES, MAX_STEPS, cron.split(), strict=True):
        for step in (part.partition("/")[2] for part in text.split(",")):
            if step.isdigit() and int(step) > most:
                raise BadTimes("cron", f"It would not go every {step}: steps of the {name} begin anew after {most}.")


def _meant(cron: str) -> str:
    """Say how to write a cron text that does not have five fields."""
    if instead := FOR_WORDS.get(cron.strip().lower()):
        return f"In place of {cron.strip()} write {instead}."
    return f"Write five fields: {', '.join(FIELD_NAMES)}."


def _unread(cron: str) -> str:
    """Name the field of a cron text that cannot be read, and say how to write it."""
    fields = cron.split()
    for place, (name, text) in enumerate(zip(FIELD_NAMES, fields, strict=True)):
        try:
            CronSim(" ".join(text if at == place else "*" for at in range(FIELDS)), datetime.now(UTC))
        except CronSimError:
            if text == "?":
                return f"It cannot be read: write * in place of ? for the {name}."
            upwards = "; a range goes upwards, and commas stand between several" if "-" in text else ""
            return f"It cannot be read: {text} is no {name}{upwards}."
    return "It never fires: there is no such day."
