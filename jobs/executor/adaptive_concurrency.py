"""Decides how many of its slots an executor uses: fewer while calls start too late to be sent."""

from __future__ import annotations

CHANGE_SECONDS = 1.0  # between two changes: calls that were claimed before a change do not show its effect


class AdaptiveConcurrency:
    """Takes away a quarter of the slots after each second in which calls were too late; otherwise adds a tenth."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._most = slots
        self._late = False
        self._changes_at = 0.0

    def note(self, *, late: bool, now: float) -> bool:
        """
        Note whether calls have started too late since the last call of `note`; `now`: monotonic seconds.

        Returns:
            Whether the executor now uses fewer slots than before.
        """
        before = self.slots
        self._late |= late
        if now < self._changes_at or not (self._late or before < self._most):
            return False
        change = -max(1, self.slots // 4) if self._late else max(1, self._most // 10)
        self.slots = max(1, min(self._most, self.slots + change))
        self._late, self._changes_at = False, now + CHANGE_SECONDS
        return self.slots < before
