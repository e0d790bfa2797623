"""
The ramp: after a resume only a share of every limit is used, and it grows to all of it.

The ramp is prepared while nothing may start, and begun in the transaction that lets work start. Processes read it with
the limits, so each applies it at most LIMITS_KEPT_SECONDS later. The clock is the database's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.db import transaction

from queueops.audit import trail
from queueops.core.clock import Now
from queueops.core.values.reasons import clean_reason
from ratelimits.algorithms.modifiers.ramp import Ramp
from ratelimits.errors import InvalidRamp, NoRamp
from ratelimits.models import Counter, ResumeRamp

from .catalogue import RAMP_ID, rule_of_ramp
from .resume_ramp import read_ramp
from .save_limit import announce_change

MIN_SECONDS, MAX_SECONDS = 1.0, 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class ShownRamp:
    """
    The ramp at this moment.

    Attributes:
        share: The part of every limit in use, 0.05 to 1.
        ends_at: When the whole of every limit is open; None: the ramp is held.
    """

    share: float
    is_held: bool
    ends_at: datetime | None

    @property
    def percent(self) -> int:
        """The share in percent; 100 only once all is in use."""
        return min(99, round(self.share * 100)) if self.share < 1 else 100


def ramp_now() -> ShownRamp | None:
    """Return the ramp; None: there is none, it has ended, or it waits for the pause to end."""
    if rule_of_ramp() is None:  # read with the limits, which the same screens show
        return None
    found = read_ramp()
    if found is None or found[0].started_at is None:
        return None
    ramp, now = found
    ends_at = None if ramp.ends_at is None else datetime.fromtimestamp(ramp.ends_at, UTC)
    return ShownRamp(ramp.share(now), ramp.held_share is not None, ends_at)


def prepare_ramp(*, over_seconds: float, slots: int, actor: str) -> None:
    """
    Set all limits to the ramp's first share, in the caller's transaction; the growth waits for `begin_ramp`.

    Raises:
        InvalidRamp: The ramp would be too short or too long.
    """
    if not MIN_SECONDS <= over_seconds <= MAX_SECONDS:
        raise InvalidRamp(f"A ramp takes from a second to a week, not {over_seconds:g} seconds.")
    figures = {"started_at": None, "over_seconds": over_seconds, "held_share": None, "slots": max(1, slots)}
    ResumeRamp.objects.update_or_create(pk=ResumeRamp.ONLY, defaults={**figures, "started_by": actor})
    Counter.objects.filter(limit_id=RAMP_ID).delete()  # the last ramp's counters still count calls that outlived it
    announce_change()


def begin_ramp() -> bool:
    """Let the share grow from now on, in the caller's transaction; False: somebody ended the ramp meanwhile."""
    begun = ResumeRamp.objects.filter(started_at=None).update(started_at=Now())
    announce_change()
    return bool(begun)


def hold_ramp(*, actor: str, reason: str = "") -> ShownRamp:
    """
    Keep the share where it is, until somebody continues or ends the ramp.

    Raises:
        NoRamp: No ramp is on: none has begun, or it has reached its end.
    """
    return _change("hold_ramp", lambda ramp, now: {"held_share": ramp.share(now)}, actor=actor, reason=reason)


def continue_ramp(*, actor: str, reason: str = "") -> ShownRamp:
    """
    Let a held share grow on, at the pace it had. A ramp that grows is left as it is.

    Raises:
        NoRamp: No ramp is on: none has begun, or it has reached its end.
    """

    def growing(ramp: Ramp, now: float) -> dict[str, Any]:
        started_at = datetime.fromtimestamp(ramp.start_for(ramp.share(now), now), UTC)
        return {"held_share": None, "started_at": started_at} if ramp.held_share is not None else {}

    return _change("continue_ramp", growing, actor=actor, reason=reason)


@transaction.atomic
def end_ramp(*, actor: str, reason: str = "") -> None:
    """
    End the ramp: every limit is open in full at once.

    Raises:
        NoRamp: No ramp is on: none has begun, or it has reached its end.
    """
    ramp, now = _locked()
    before = {"share": round(ramp.share(now), 3)}
    drop_ramp()
    trail.record(
        actor=actor, action="end_ramp", target="ramp", before=before, after={"share": 1}, reason=clean_reason(reason)
    )


def drop_ramp() -> None:
    """Delete the ramp in the caller's transaction, which reports it."""
    if ResumeRamp.objects.all().delete()[0]:
        announce_change()


def is_prepared() -> bool:
    """Whether there is a ramp, even if it still waits for the pause to end."""
    return read_ramp() is not None


def set_slots(count: int) -> None:
    """Set how many calls all executors together can have in flight. The ramp opens a share of this number."""
    ResumeRamp.objects.exclude(slots=max(1, count)).update(slots=max(1, count))


@transaction.atomic
def _change(action: str, change: Callable[[Ramp, float], dict[str, Any]], *, actor: str, reason: str) -> ShownRamp:
    ramp, now = _locked()
    figures = change(ramp, now)
    if figures:
        ResumeRamp.objects.update(**figures)
        trail.record(
            actor=actor,
            action=action,
            target="ramp",
            after={"share": round(ramp.share(now), 3), "is_held": figures["held_share"] is not None},
            reason=clean_reason(reason),
        )
        announce_change()
    shown = ramp_now()
    if shown is None:  # it has reached its end just now
        raise NoRamp
    return shown


def _locked() -> tuple[Ramp, float]:
    list(ResumeRamp.objects.select_for_update())
    found = read_ramp()
    if found is None or found[0].started_at is None:
        raise NoRamp
    return found
