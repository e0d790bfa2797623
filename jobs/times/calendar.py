"""The times of a maintenance window, from its calendar and time zone alone. Pure; clocks are read as in cron.py."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta

from jobs.times.cron import TICK, BadTimes, Times, check_zone

DAYS = ("MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN")  # cron's names, in the order of datetime's weekdays
MAX_WEEKLY = timedelta(hours=27)  # a day, and the three hours by which a clock is set back at most
MAX_ONCE = timedelta(days=31)
# A cap on how long work takes: a slow limit could make it longer, and Python has no date so late.
FAR_OFF_SECONDS = 1000 * 366 * 86_400.0


@dataclass(frozen=True, slots=True)
class Span:
    begins_at: datetime
    ends_at: datetime


@dataclass(frozen=True, slots=True)
class Calendar:
    """
    A window that is open once, from `begins_at` to `ends_at`, or on weekdays from `since` to the next time `until`.

    Where clocks are moved, both ends go by the clock on the wall. A window may then be an hour longer or shorter that
    day, and a window inside an hour that the clock skips does not open.

    Attributes:
        weekdays: The days on which it begins; 0 is Monday.
        since: If it equals `until`, the window lasts a whole day.
    """

    begins_at: datetime | None = None
    ends_at: datetime | None = None
    weekdays: Sequence[int] = ()
    since: time | None = None
    until: time | None = None
    time_zone: str = "UTC"

    def check(self, now: datetime) -> Span:
        """
        Return the span that is open, or the next.

        Raises:
            BadTimes: `field` names a field of the window.
        """
        check_zone(self.time_zone)  # for a window that is open once, too: its pages use the zone
        if self.begins_at or self.ends_at:
            self._check_once(now)
        elif not self.weekdays:
            raise BadTimes("weekdays", "Choose at least one day, or say from when to when it is, once.")
        elif self.since is None or self.until is None:
            field = "since" if self.since is None else "until"
            raise BadTimes(field, "Say a time of the day.")
        else:
            _check_clock(since=self.since, until=self.until)
            self._begins().check(now)
        return next(self.spans(now))

    def _check_once(self, now: datetime) -> None:
        if self.weekdays or self.since or self.until:
            raise BadTimes("weekdays", "It is either once, from when to when, or on weekdays: leave the other empty.")
        if self.begins_at is None or self.ends_at is None:
            raise BadTimes("ends_at" if self.ends_at is None else "begins_at", "Say from when to when.")
        if self.ends_at <= self.begins_at:
            raise BadTimes("ends_at", "It ends before it begins.")
        if self.ends_at - self.begins_at > MAX_ONCE:
            raise BadTimes("ends_at", f"It lasts for at most {MAX_ONCE.days} days; pause by hand for longer.")
        if self.ends_at <= now:
            raise BadTimes("ends_at", "That is over.")

    def spans(self, after: datetime) -> Iterator[Span]:
        """Yield the spans that end after a moment, in order; endlessly if the window is weekly."""
        if self.begins_at is not None and self.ends_at is not None:
            if self.ends_at > after:
                yield Span(self.begins_at, self.ends_at)
            return
        if self.since is None or self.until is None or not self.weekdays:
            return
        ends = Times(_cron(self.until), self.time_zone)
        # A window of a whole day ends when the clock shows `until` again. A time that the clock skips counts as the
        # end of the gap.
        least = timedelta() if self.since == self.until else TICK
        for fire in self._begins().after(after - MAX_WEEKLY):
            end = next(ends.after(fire.due_at - least)).due_at
            if end > max(after, fire.due_at):
                yield Span(fire.due_at, end)

    def _begins(self) -> Times:
        days = ",".join(DAYS[day] for day in sorted(self.weekdays))
        return Times(_cron(self.since or time(), days), self.time_zone)


def _check_clock(**read: time) -> None:
    for field, at in read.items():
        if at != time(at.hour, at.minute):
            raise BadTimes(field, "Write hour and minute alone, such as 22:00; the time zone says whose clock.")


def _cron(at: time, days: str = "*") -> str:
    return f"{at.minute} {at.hour} * * {days}"


def merged(spans: Sequence[Span]) -> list[Span]:
    """Join overlapping spans; return them in order."""
    found: list[Span] = []
    for span in sorted(spans, key=lambda one: one.begins_at):
        if found and span.begins_at <= found[-1].ends_at:
            found[-1] = Span(found[-1].begins_at, max(found[-1].ends_at, span.ends_at))
        else:
            found.append(span)
    return found


def stretched(seconds: float, spans: Sequence[Span], now: datetime) -> float:
    """Return how long work of so many seconds takes if it stands still in these spans, which must not overlap."""
    end = now + timedelta(seconds=min(seconds, FAR_OFF_SECONDS))
    for span in spans:
        begins_at = max(span.begins_at, now)
        if begins_at <= end and span.ends_at > now:
            end += span.ends_at - begins_at
    return (end - now).total_seconds()
