"""
Pressure: the part of a limit that is used after its provider pushed back.

Additive increase, multiplicative decrease (Chiu and Jain 1989; the factor is that of RFC 9438): many
clients that follow it share a capacity none of them knows.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PressureRules:
    """A refusal multiplies by `decrease`, each minute without adds `recovery_per_minute`, never below `lowest`."""

    decrease: float = 0.7
    recovery_per_minute: float = 0.1
    lowest: float = 0.1

    def __post_init__(self) -> None:
        if not (0 < self.decrease < 1 and self.recovery_per_minute > 0 and 0 < self.lowest <= 1):
            raise ValueError(f"pressure: 0 < decrease < 1, recovery above 0, 0 < lowest <= 1, not {self}")


DEFAULT_RULES = PressureRules()


@dataclass(frozen=True, slots=True)
class Pressure:
    """The factor in (0, 1] as of `changed_at`, seconds since 1970; None: never pushed back."""

    factor: float = 1.0
    changed_at: float | None = None


def pressure_at(pressure: Pressure, now: float, rules: PressureRules = DEFAULT_RULES) -> float:
    """Return the factor that holds now, recovered for the time since it changed; a clock gone back recovers nothing."""
    if pressure.changed_at is None:
        return 1.0
    minutes = max(0.0, now - pressure.changed_at) / 60
    return min(1.0, pressure.factor + rules.recovery_per_minute * minutes)


def pushed_back(pressure: Pressure, now: float, sent_at: float, rules: PressureRules = DEFAULT_RULES) -> Pressure:
    """
    Return the pressure after a 429.

    A refusal of a call that was sent before the last decrease is no news: a burst of refusals, all of the
    pace before, slows the limit once. The same object is returned then. A decrease that lies
    in the future is a clock's that has gone back, and tells nothing about when the call was sent.

    Args:
        sent_at: When the refused call was dispatched, seconds since 1970.
    """
    if pressure.changed_at is not None and sent_at <= pressure.changed_at <= now:
        return pressure
    return Pressure(max(rules.lowest, pressure_at(pressure, now, rules) * rules.decrease), now)
