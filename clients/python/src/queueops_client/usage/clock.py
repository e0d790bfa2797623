"""The server's time, from the Date header of its answers: the local clock may be wrong by hours."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

HALF_A_DATE_SECONDS = 0.5  # the header has whole seconds, cut off


class ServerClock:
    """
    Attributes:
        local: Seconds since 1970 by the local clock.
        offset: What to add to it; None until the server has answered.
    """

    def __init__(self, local: Callable[[], float] = time.time) -> None:
        self.local = local
        self.offset: float | None = None

    def now(self) -> float:
        """Seconds since 1970: the server's if known, else the local clock's."""
        return self.local() + (self.offset or 0.0)

    def learn(self, headers: Mapping[str, str], *, began: float) -> None:
        """
        Take the time of an answer that just came.

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

        It can be neither later than now nor earlier than the last answer before it. Without these bounds a clock
        that was set while the event waited would make the server refuse it.

        Args:
            at: By the local clock of then.
            offset: As known then.
            floor: The server's time when it was last heard of before the event; 0: never.
        """
        corrected = at + ((self.offset or 0.0) if offset is None else offset)
        return min(max(corrected, floor), max(self.now(), floor))


def as_text(moment: float) -> str:
    """ISO 8601 in UTC."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds")


def seconds_of(text: str) -> float:
    """Return an ISO 8601 text as seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()
