"""The server's time, from the Date header of its answers: the local clock may be wrong by hours."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

HALF_A_DATE_SECONDS = 0.5  # the header's seconds are cut off to whole ones


class ServerClock:
    """
    Attributes:
        local: Seconds since 1970 by the local clock.
        offset: Seconds to add to the local clock; None until the server has answered.
    """

    def __init__(self, local: Callable[[], float] = time.time) -> None:
        self.local = local
        self.offset: float | None = None

    def now(self) -> float:
        """Seconds since 1970: the server's if known, else the local clock's."""
        return self.local() + (self.offset or 0.0)

    def learn(self, headers: Mapping[str, str], *, began: float) -> None:
        """
        Set the offset by the Date header of an answer that just came.

        Args:
            began: When its request was sent, by the local clock.
        """
        try:
            moment = parsedate_to_datetime(headers.get("date", ""))
        except ValueError:
            return
        middle = (began + self.local()) / 2
        self.offset = moment.replace(tzinfo=moment.tzinfo or UTC).timestamp() + HALF_A_DATE_SECONDS - middle

    def time_of_event(self, at: float, *, offset: float | None, floor: float) -> float:
        """
        Return when an event happened, by the server's clock, as well as can be known.

        The event can be neither later than now nor earlier than the last answer before it. Without these bounds, the
        server would refuse the event if the local clock was set while the event waited.

        Args:
            at: The event's time, by the local clock of that time.
            offset: The offset that was known at that time.
            floor: The server's time in its last answer before the event; 0: there was none.
        """
        corrected = at + ((self.offset or 0.0) if offset is None else offset)
        return min(max(corrected, floor), max(self.now(), floor))


def as_text(moment: float) -> str:
    """Return seconds since 1970 as an ISO 8601 text in UTC."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")


def seconds_of(text: str) -> float:
    """Return an ISO 8601 text as seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()
