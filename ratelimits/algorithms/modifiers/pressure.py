"""
Pressure: the part of a limit that is used after its provider pushed back.

Additive increase, multiplicative decrease (Chiu and Jain 1989; the factor comes from RFC 9438): many
clients that follow it share a capacity that none of them knows.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PressureRules:
    """
    How refusals slow a limit, and how it recovers.

    Each refusal takes `gain` times the refused part of what was let through. The gain makes up for calls that the first
    refusals stop: only some of the excess is ever refused. The first refusal at one pace takes at least `least`,
    because even a single refusal shows that the pace is too high. All refusals at one pace together leave at least
    `decrease`. Each minute without refusals adds `recovery_per_minute`. The factor never falls below `lowest`.
    """

    decrease: float = 0.7
    least: float = 0.03
    gain: float = 4.0
    recovery_per_minute: float = 0.1
    lowest: float = 0.1

    def __post_init__(self) -> None:
        if not (0 < self.decrease < 1 and self.recovery_per_minute > 0 and 0 < self.lowest <= 1):
            raise ValueError(f"pressure: 0 < decrease < 1, recovery above 0, 0 < lowest <= 1, not {self}")
        if not (0 <= self.least <= 1 - self.decrease and self.gain > 0):
            raise ValueError(f"pressure: 0 <= least <= 1 - decrease, gain above 0, not {self}")


DEFAULT_RULES = PressureRules()


@dataclass(frozen=True, slots=True)
class Pressure:
    """
    The factor in (0, 1] as of `changed_at`, seconds since 1970. `changed_at` None: the provider never pushed back.

    Attributes:
        before: The factor before the latest refusals at one pace, which lowered it to `factor`.
    """

    factor: float = 1.0
    changed_at: float | None = None
    before: float = 1.0


NO_PRESSURE = Pressure()


def pressure_at(pressure: Pressure, now: float, rules: PressureRules = DEFAULT_RULES) -> float:
    """Return the factor now, recovered for the time since it changed. A clock that went back recovers nothing."""
    if pressure.changed_at is None:
        return 1.0
    minutes = max(0.0, now - pressure.changed_at) / 60
    return min(1.0, pressure.factor + rules.recovery_per_minute * minutes)


def pushed_back(
    pressure: Pressure, now: float, sent_at: float, *, share: float = 1.0, rules: PressureRules = DEFAULT_RULES
) -> Pressure:
    """
    Return the pressure after a 429, in proportion to what was refused.

    A call that was sent before a decrease was refused at the earlier pace. Its refusal adds to what the first refusal
    took, up to the most that `PressureRules` allows. A refused share of 1/1000 takes 3 %, a share of 1/13 or more takes
    30 %. A call sent after the decrease was refused at the new pace and takes from what is left. If the decrease lies
    in the future, the clock has gone back, and the decrease says nothing about when the call was sent.

    Args:
        sent_at: When the refused call was dispatched, seconds since 1970.
        share: The refused part of what the limit had let through in its window, 0 to 1; 1 if our count showed room.

    Returns:
        The same object where nothing changes.
    """
    taken = rules.gain * min(max(share, 0.0), 1.0)
    if pressure.changed_at is None or not sent_at <= pressure.changed_at <= now:
        before, changed_at = pressure_at(pressure, now, rules), now
        taken = max(rules.least, taken)
    else:
        before, changed_at = pressure.before, pressure.changed_at
        taken += 1 - pressure.factor / before
    factor = max(rules.lowest, before * max(rules.decrease, 1 - taken))
    if changed_at == pressure.changed_at and factor >= pressure.factor:
        return pressure
    return Pressure(factor, changed_at, before)
