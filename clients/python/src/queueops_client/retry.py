"""Which requests are sent again, and when."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from queueops_client.errors import ApiError, TooManyRequests, Unreachable

# A proxy answers these while the server is down, and the server while its database is down.
PASSING = frozenset({502, 503, 504})


@dataclass(frozen=True, slots=True)
class Retry:
    """
    Truncated exponential backoff with full jitter: before the n-th repeat a random time up to min(cap, base * 2^(n-1)).
    Clients that failed together thus do not come back together.

    Attributes:
        budget_seconds: No repeat begins later than this after the first attempt; 0: never repeat.
        draw: Returns a random number from 0 to 1.
        told: Called before the pause of each repeat, with the reason and the repeat's number, counted from 1.
    """

    budget_seconds: float = 60.0
    base_seconds: float = 0.25
    cap_seconds: float = 20.0
    draw: Callable[[], float] = random.random
    told: Callable[[ApiError | Unreachable, int], None] | None = None

    def backoff_seconds(self, repeat: int) -> float:
        """Return a random time to wait before the given repeat, counted from 1."""
        return self.draw() * min(self.cap_seconds, self.base_seconds * 2.0 ** min(repeat - 1, 32))

    def pause_seconds(
        self, error: ApiError | Unreachable, *, repeat: int, elapsed: float, is_safe: bool
    ) -> float | None:
        """
        Return how many seconds to wait before sending the request again; None: give up.

        A request that may have been carried out is sent again only if that is safe. A request that never
        arrived, or was refused for its rate, may always be sent again. The server's Retry-After is never undercut.

        Args:
            elapsed: Seconds since the first attempt began.
            is_safe: Whether carrying the request out twice has the effect of once.
        """
        if isinstance(error, Unreachable):
            may_repeat, least = is_safe or not error.may_have_arrived, 0.0
        else:
            may_repeat = isinstance(error, TooManyRequests) or (is_safe and error.status in PASSING)
            least = error.retry_after or 0.0
        pause = least + self.backoff_seconds(repeat)
        return pause if may_repeat and elapsed + pause <= self.budget_seconds else None


NEVER = Retry(budget_seconds=0)
