"""How many of its slots an executor uses: fewer while it starts calls late."""

from __future__ import annotations

CHANGE_SECONDS = 1.0  # between two changes: calls that were claimed before one say nothing of it


class Width:
    """Half as many slots after each second in which calls started late, down to one; a tenth more after any other."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._most = slots
        self._late = False
        self._changes_at = 0.0

    def note(self, *, late: bool, now: float) -> None:
        """Take note whether calls have started late since the last note; `now`: monotonic seconds."""
        self._late |= late
        if now < self._changes_at or not (self._late or self.slots < self._most):
            return
        self.slots = max(1, self.slots // 2) if self._late else min(self._most, self.slots + max(1, self._most // 10))
        self._late, self._changes_at = False, now + CHANGE_SECONDS
