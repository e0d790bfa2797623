"""Every call received and every effect applied, from the provider's side."""

import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from sandbox import clock

MAX_CALLS_KEPT = 200_000
MAX_EFFECT_NAMES = 1_000_000


@dataclass(slots=True)
class ReceivedCall:
    """
    One call as received.

    `accepted` is false when an outage, a quota or a drawn 429 turned the call away. It is false, too, when its caller
    or model was refused before any quota, or its caller left before the whole call had arrived. `status` is null until
    the call is answered, and stays null if the connection was broken instead: `ended` tells the two apart. `cause`
    names the knob that decided the answer. `quota_kind` is read, write, generate or batch. `cached_tokens`
    are part of `prompt_tokens`. `violated` names the provider's quotas that had no room.
    """

    seq: int
    at: float
    provider: str
    method: str
    path: str
    effect_key: str | None
    accepted: bool = True
    status: int | None = None
    ended: bool = False
    cause: str | None = None
    effects: int = 0
    latency_ms: float = 0.0
    project: str | None = None
    user: str | None = None
    model: str | None = None
    quota_kind: str | None = None
    cost_tokens: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    violated: list[str] = field(default_factory=list)


@dataclass(slots=True)
class EffectCounts:
    """How often each name had an effect applied."""

    counts: Counter[str] = field(default_factory=Counter)
    repeated: int = 0
    untracked: int = 0

    def add(self, name: str) -> None:
        if name not in self.counts and len(self.counts) >= MAX_EFFECT_NAMES:
            self.untracked += 1
            return
        self.counts[name] += 1
        self.repeated += self.counts[name] == 2  # noqa: PLR2004 (the second time makes it repeated)


class Ledger:
    """The newest MAX_CALLS_KEPT calls, and counters of all of them."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._calls: deque[ReceivedCall] = deque(maxlen=MAX_CALLS_KEPT)
        self._open: set[int] = set()  # by id(): a call from before a clear() is not counted
        self._received = self._accepted = self._effects = self._most_in_flight = 0
        self._statuses: Counter[str] = Counter()
        self.rows = EffectCounts()
        self.effect_keys = EffectCounts()

    def open_call(self, *, provider: str, method: str, path: str, effect_key: str | None) -> ReceivedCall:
        """Note a call at its arrival, so that a call whose caller dies is seen, too."""
        self._received += 1
        call = ReceivedCall(self._received, clock.now(), provider, method, path, effect_key)
        self._calls.append(call)
        self._open.add(id(call))
        self._most_in_flight = max(self._most_in_flight, len(self._open))
        return call

    def close_call(self, call: ReceivedCall, status: int | None) -> None:
        """Note the answer; None when the connection was broken instead."""
        call.status, call.ended = status, True
        if id(call) not in self._open:
            return
        self._open.remove(id(call))
        self._statuses["none" if status is None else str(status)] += 1
        self._accepted += call.accepted

    def note_effect(self, call: ReceivedCall, *, row: str | None = None) -> None:
        """Note that the call changed something at the provider."""
        call.effects += 1
        if id(call) not in self._open:
            return
        self._effects += 1
        if row is not None:
            self.rows.add(row)
        if call.effect_key is not None:
            self.effect_keys.add(call.effect_key)

    def counters(self) -> dict[str, Any]:
        answered = self._statuses.total()
        return {
            "received": self._received,
            "answered": answered,
            "in_flight": self._received - answered,
            "most_in_flight": self._most_in_flight,
            "accepted": self._accepted,
            "rejected": answered - self._accepted,
            "by_status": dict(sorted(self._statuses.items())),
            "effects_applied": self._effects,
            "rows_written": len(self.rows.counts),
            "rows_written_repeatedly": self.rows.repeated,
            "effect_keys_seen": len(self.effect_keys.counts),
            "effect_keys_repeated": self.effect_keys.repeated,
            "effects_untracked": self.rows.untracked + self.effect_keys.untracked,
            "calls_dropped": self._received - len(self._calls),
        }

    def page(
        self, *, after: int, limit: int, matches: Callable[[ReceivedCall], bool]
    ) -> tuple[list[dict[str, Any]], int | None]:
        """Return up to `limit` matching calls past `after` in order of arrival, and the next `after`."""
        found = [asdict(call) for call in itertools.islice(self._matching(after, matches), limit + 1)]
        return found[:limit], found[limit - 1]["seq"] if len(found) > limit else None

    def _matching(self, after: int, matches: Callable[[ReceivedCall], bool]) -> Iterator[ReceivedCall]:
        dropped = self._received - len(self._calls)
        return (call for call in itertools.islice(self._calls, max(after - dropped, 0), None) if matches(call))
