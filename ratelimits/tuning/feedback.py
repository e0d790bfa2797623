"""Slowing down the counters whose quotas a provider says were exceeded, and no others."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from django.db import transaction

from queueops.core.clock import Now, database_now, foretold
from queueops.core.values.retry_after import spread
from ratelimits.alerts import alerts
from ratelimits.algorithms.figures import NOUNS
from ratelimits.algorithms.measures import MICRO, microseconds
from ratelimits.algorithms.modifiers.hold import NO_HOLD, HeldDelay, obeyed
from ratelimits.algorithms.modifiers.pressure import Pressure, pressure_at, pushed_back
from ratelimits.costs import NO_AMOUNTS, Amounts, estimate
from ratelimits.feedback import PushBack, Violation
from ratelimits.limiter.call_units import needed
from ratelimits.limiter.counters import OpenCounter, lock_counters, pressure_of, usage
from ratelimits.limits.catalogue import rules_for
from ratelimits.models import Counter, CounterFeedback
from ratelimits.subjects import Subject
from ratelimits.violated import MINUTE, Violated, possible_rules, violated_rules

from .proposed_limits import Accepted, heed_accepted, propose_limits
from .reserved_whole import REFUSALS_THAT_TELL, propose_whole, speaks_for_whole
from .stated_caps import known_cap, note_stated_cap

MAX_WINDOWS_COOLED = 2  # the longest cool-down after a refusal without a stated delay
MAX_DOUBLINGS = 5  # how often a repeatedly refused call's wait doubles: from a minute to half an hour
MUCH_ROOM = 0.1  # a part of a limit; if more was free, the provider counts differently, or others use the quota too
# If a burst's later refusals prolong a block by less than this, the log gets no new line.
NEWS_SECONDS = 1.0
RESTATED_SECONDS = 5.0  # two answers that state the same moment differ by less
MAX_REASON = 200


class Refusal(NamedTuple):
    """
    One refused call.

    Attributes:
        sent_at: When it was dispatched, seconds since 1970 by the database's clock.
        cost: The call's cost in tokens. `known_cost` is the part that was no guess, `amounts` are by unit; see
            `decide.Call`.
        ratio: The real size of the known part divided by its estimate, as measured in other calls; None: unknown.
        times_before: How often the call was refused before. Then the call may be too large, and the pace right.
        label: Its name in alerts, such as `job <id>`.
    """

    subject: Subject
    push_back: PushBack
    sent_at: float
    cost: float = 1.0
    known_cost: float | None = None
    amounts: Amounts = NO_AMOUNTS
    ratio: float | None = None
    times_before: int = 0
    label: str = ""


@dataclass(frozen=True, slots=True)
class Cooling:
    """
    The effects of a refusal.

    Attributes:
        until: Seconds since 1970 by the database's clock; before it the call would be refused again.
        seconds: The time from now until `until`.
        counters: The ids of the counters that cool down. Empty if no limit counts such calls and none can be prepared,
            or if only the call itself has to wait.
        never: Why no wait will help; empty: a wait may help.
        figures: The figures of `never`, by name.
    """

    until: float
    seconds: float
    counters: tuple[str, ...]
    never: str = ""
    figures: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class _Cooled:
    """
    A locked counter, with the changes to be stored.

    Attributes:
        chance: A random number that spreads its cool-down, so that counters with one stated delay do not open together.
        hold: The hold for a stated delay that is longer than the limiter waits without a probe.
        whole: How many refusals suggest that the provider counts calls whole, see `reserved_whole`.
    """

    counter: OpenCounter
    pressure: Pressure
    blocked_until: float | None
    reason: str
    is_news: bool = False
    violation: Violation = field(default_factory=Violation)
    subject: Subject | None = None
    label: str = ""
    chance: float = 0.0
    hold: HeldDelay = NO_HOLD
    whole: int = 0
    stated_cap: float | None = None


def push_back(subject: Subject, push_back: PushBack, *, sent_at: float, actor: str) -> Cooling:
    """Do what `push_backs` does, for one call."""
    return push_backs([Refusal(subject, push_back, sent_at)], actor=actor)[0]


@transaction.atomic
def push_backs(refusals: Sequence[Refusal], *, actor: str, accepted: Accepted = lambda _: 0) -> list[Cooling]:
    """
    Cool down and slow the counters whose quotas a provider says were exceeded; one answer for each refusal, in order.

    A minute's quota is blocked for the stated delay; beyond a bound the delay is held, see `modifiers.hold`. If no
    delay is stated, the quota is blocked until our own count has room, for at most two windows. Its pressure falls in
    proportion to what was refused, see `modifiers.pressure`. A day's quota is blocked until its reset, however short
    the delay. A cap that the provider states becomes a proposal or, if the limit learns caps, the cap. No block ever
    ends earlier than before.

    A refusal that does not say what it counts slows the limits that show no room. If all limits show room, it slows the
    limits of the narrowest scope that count requests.

    If no limit counts a call, a limit is prepared in shadow, see `proposed_limits`. Counters of a shadow limit cool
    down for as long as the provider says, or for a minute. Every cool-down is spread a little, upwards.

    Locks: the counters, in the order of their ids, all in one statement; then limits, where a stated cap is new.
    Events: a line of the counter's log and an alert for each counter that was slowed or blocked anew. The audit trail
        has none, as a provider that refuses for long would fill it.

    Args:
        actor: Who reports the refusal, such as `executor:<id>`.
    """
    matched = _matched(refusals)
    uncounted = [(one.subject, one.push_back) for one, found in matched if not found]
    if uncounted and propose_limits(uncounted, accepted=accepted, actor=actor):
        matched = _matched(refusals)
    possible = [possible_rules(rules_for(one.subject), one.push_back) for one, _ in matched]
    places = [
        (meant.rule, meant.rule.key(one.subject))
        for (one, found), others in zip(matched, possible, strict=True)
        for meant in (*found, *others)
    ]
    cooled = _open(lock_counters(places))
    matched = [
        (one, _without_room(cooled, one, others) or found)
        for (one, found), others in zip(matched, possible, strict=True)
    ]
    now = max((one.counter.now for one in cooled.values()), default=0.0) or database_now()
    answers, stated = [], {}
    for one, found in matched:
        ids = []
        oversized = next(filter(None, (_oversized(cooled, one, meant) for meant in found)), None)
        if oversized is not None:
            answers.append(oversized)
            continue
        for meant in found:
            counter_id = meant.rule.counter_id(one.subject)
            if one.times_before and not meant.rule.per_call:
                continue  # this call may be too large: do not slow the other calls for it again
            _cool(cooled[counter_id], one, meant.violation)
            cooled[counter_id].subject, cooled[counter_id].label = one.subject, one.label
            ids.append(counter_id)
            if meant.exact and meant.violation.stated_cap is not None:
                cooled[counter_id].stated_cap = meant.violation.stated_cap
                stated[counter_id] = (meant.rule, meant.rule.key(one.subject), meant.violation.stated_cap)
        until = max((cooled[counter_id].blocked_until or now for counter_id in ids), default=now + _by_itself(one))
        answers.append(Cooling(until, max(0.0, until - now), tuple(ids)))
    for counter_id in sorted(cooled.keys() & {counter_id for one in answers for counter_id in one.counters}):
        _store(counter_id, cooled[counter_id], actor=actor, accepted=accepted)
    for counter_id in sorted(stated):
        rule, key, cap = stated[counter_id]
        note_stated_cap(rule, key, cap, actor=actor)
    return answers


def _matched(refusals: Sequence[Refusal]) -> list[tuple[Refusal, list[Violated]]]:
    return [(one, violated_rules(rules_for(one.subject), one.push_back)) for one in refusals]


def _without_room(cooled: Mapping[str, _Cooled], refusal: Refusal, possible: Sequence[Violated]) -> list[Violated]:
    """Return the limits without room by our own count: a refusal that names no quota is taken to mean these."""
    found = []
    for one in possible:
        counter = cooled[one.rule.counter_id(refusal.subject)].counter
        if not one.rule.shadow and counter.meter.available() / MICRO <= MUCH_ROOM * counter.algorithm.capacity:
            found.append(one)
    return found


def _open(counters: dict[str, OpenCounter]) -> dict[str, _Cooled]:
    opened = {}
    for row in Counter.objects.filter(pk__in=counters).only("pressure", "pressure_changed_at", "pressure_before"):
        counter, pressure = counters[row.pk], pressure_of(row)
        opened[row.pk] = _Cooled(
            counter,
            pressure,
            counter.blocked_until,
            counter.blocked_reason,
            chance=random.random(),  # noqa: S311 - spreads cool-downs, protects nothing
            hold=counter.hold,
            whole=int(counter.stored.get("whole", 0)),
        )
    return opened


def _cool(cooled: _Cooled, refusal: Refusal, violation: Violation) -> None:
    counter = cooled.counter
    if cooled.hold.until and _restates(cooled, refusal.push_back):  # a probe, or an earlier call, was refused
        cooled.hold = cooled.hold.refused(counter.now)
        cooled.blocked_until = max(cooled.blocked_until or 0.0, cooled.hold.next_at)
        cooled.violation = violation
        return
    if not counter.rule.hard_reset and not counter.rule.shadow:  # a shadow limit's cap is not in use
        slowed = pushed_back(cooled.pressure, counter.now, refusal.sent_at, share=_share(counter, refusal))
        is_first = slowed.changed_at != cooled.pressure.changed_at  # the first refusal of a burst
        cooled.is_news |= is_first
        cooled.whole += is_first and speaks_for_whole(counter, refusal, much_room=MUCH_ROOM)
        cooled.pressure = slowed
    until = _blocked_until(counter, refusal.push_back, violation, cooled.pressure)
    until = counter.now + spread(until - counter.now, cooled.chance)
    if until > (cooled.blocked_until or counter.now):
        cooled.is_news |= until > (cooled.blocked_until or counter.now) + NEWS_SECONDS
        cooled.blocked_until = until
        named = violation.name or "a quota it does not name"
        cooled.reason = f"{counter.rule.service} refused: {named}"[:MAX_REASON]
    cooled.hold = _hold(counter, refusal.push_back, violation, cooled.blocked_until or counter.now)
    if cooled.hold.until:
        cooled.reason = f"{cooled.reason}, for long; one call a minute tries"[:MAX_REASON]
    cooled.violation = violation


def _restates(cooled: _Cooled, found: PushBack) -> bool:
    """Whether a refusal confirms a hold; a refusal that states a shorter delay ends the hold."""
    return found.retry_after is None or cooled.counter.now + found.retry_after > cooled.hold.until - RESTATED_SECONDS


def _hold(counter: OpenCounter, found: PushBack, violation: Violation, blocked_until: float) -> HeldDelay:
    """The hold for the part of a stated delay beyond `blocked_until`."""
    until = counter.now + (found.retry_after or 0.0)
    if violation.per_day or until <= blocked_until + RESTATED_SECONDS:
        return NO_HOLD
    return HeldDelay(until, blocked_until)


def _oversized(cooled: Mapping[str, _Cooled], refusal: Refusal, meant: Violated) -> Cooling | None:
    """
    Return why a call's tokens can never fit, and open an alert; None: the tokens may fit.

    They cannot fit if the provider says so itself. Otherwise two things must hold: the call was refused when it was
    nearly alone in its window, and its known part times its measured ratio is above the cap.
    """
    counter = cooled[meant.rule.counter_id(refusal.subject)].counter
    if meant.rule.per_call:
        return None
    cap, real = meant.rule.algorithm(counter.key).capacity, 0.0
    if meant.violation.requested is not None:
        cap, real = meant.violation.stated_cap or cap, meant.violation.requested
    elif refusal.ratio is not None and _was_alone(counter, refusal):
        amount, known = estimate(
            meant.rule.unit,
            refusal.cost,
            refusal.known_cost,
            refusal.amounts,
            counts_cached=meant.rule.counts_cached,
        )
        real = (amount if known is None else known) * refusal.ratio
    if real <= cap:
        return None
    how = f"{refusal.cost:,.0f} were estimated" + (f"; measured: {refusal.ratio:.2f} times" if refusal.ratio else "")
    noun = NOUNS[meant.rule.unit]
    why = f"{meant.rule.name}: it needs about {real:,.0f} {noun} ({how}), more than the cap of {cap:,.0f}"
    figures = {
        "limit": meant.rule.name,
        "needed": round(real),
        "estimated": refusal.cost,
        "ratio": refusal.ratio,
        "cap": cap,
        "call": refusal.label,
    }
    message = f"{alerts.named(meant.rule, counter.key)}: {refusal.label or 'a call'} can never fit. {why}"
    alerts.tell_exceeded(meant.rule, counter.key, message=message, figures=figures)
    return Cooling(counter.now, 0.0, (), why, figures)


def _was_alone(counter: OpenCounter, refusal: Refusal) -> bool:
    capacity = counter.algorithm.capacity
    used, _ = usage(counter.rule, counter.key, counter.stored, counter.now)
    own = needed(counter.rule, counter.key, refusal)
    return used - own <= MUCH_ROOM * capacity


def _share(counter: OpenCounter, refusal: Refusal) -> float:
    """The refused part of what was let through; 1 if our count showed much room, as the count cannot be right then."""
    free = counter.meter.available() / MICRO
    if free > MUCH_ROOM * counter.algorithm.capacity:
        return 1.0
    cost = 1.0 if counter.rule.per_call else needed(counter.rule, counter.key, refusal)
    used, _ = usage(counter.rule, counter.key, counter.stored, counter.now)
    return cost / max(used, cost, 1.0)


def _blocked_until(counter: OpenCounter, found: PushBack, violation: Violation, pressure: Pressure) -> float:
    rule, now = counter.rule, counter.now
    window: float = MINUTE if rule.hard_reset else rule.window_seconds or MINUTE
    if violation.per_day and not rule.shadow:
        reset = counter.algorithm.reset_after(microseconds(now)) if rule.hard_reset else None
        if reset is not None:
            return reset / MICRO + rule.guard_seconds
        return now + max(found.retry_after or 0.0, MAX_WINDOWS_COOLED * window)  # no limit here counts the day
    if found.retry_after is not None:
        is_proven = violation.per_day
        return now + (
            found.retry_after if is_proven else obeyed(found.retry_after, max(window, violation.window_seconds))
        )
    if rule.shadow:
        return now + MINUTE
    if rule.hard_reset:
        return now + window
    factor = pressure_at(pressure, now)
    room_at = rule.algorithm(counter.key, factor).open(counter.stored, now).line_up(MICRO) / MICRO
    return min(max(room_at, now + (1 - factor) * window), now + MAX_WINDOWS_COOLED * window)


def _store(counter_id: str, cooled: _Cooled, *, actor: str, accepted: Accepted) -> None:
    counter, pressure = cooled.counter, cooled.pressure
    is_whole = cooled.whole >= REFUSALS_THAT_TELL
    if is_whole:
        cooled.whole = 0
        propose_whole(counter.rule, actor=actor)
    Counter.objects.filter(pk=counter_id).update(
        pressure=pressure.factor,
        pressure_changed_at=_moment(pressure.changed_at),
        pressure_before=pressure.before,
        blocked_until=_moment(cooled.blocked_until),
        blocked_reason=cooled.reason,
        updated_at=Now(),
        **_kept_state(cooled),
    )
    if not cooled.is_news:
        return
    after = {
        "pressure": round(pressure_at(pressure, counter.now), 3),
        "blocked_until": _iso(cooled.blocked_until),
    }
    CounterFeedback.objects.create(
        counter=counter_id,
        actor=actor[:100],
        reason=cooled.reason[:MAX_REASON],
        call=cooled.label[:MAX_REASON],
        pressure=pressure_at(pressure, counter.now),
        blocked_until=_moment(cooled.blocked_until),
    )
    figures = _figures(cooled, after)
    if counter.rule.shadow and cooled.subject is not None:
        capacity = heed_accepted(counter.rule, cooled.subject, accepted)
        alerts.tell_unlimited(counter.rule, counter.key, capacity=capacity, reason=cooled.reason, figures=figures)
    elif counter.rule.hard_reset or is_whole or (told := _too_high(counter, cooled.stated_cap)) is None:
        message = _message(counter, cooled)
        if is_whole:
            message += (
                f"; {counter.rule.service} seems to count all that a call may bring: look at what the limit reserves"
            )
        alerts.tell_exceeded(counter.rule, counter.key, message=message, figures=figures)
    else:  # calls go on at the provider's pace, and people have only the proposal to decide
        severity = alerts.Severity.WARNING
        alerts.tell_exceeded(counter.rule, counter.key, message=told, figures=figures, severity=severity)


def _too_high(counter: OpenCounter, stated_cap: float | None) -> str | None:
    """Say that the provider allows less than the limit, and how much; None: it allows as much, or states no cap."""
    rule, cap = counter.rule, known_cap(counter.rule, counter.key)
    if stated_cap is None or stated_cap >= cap:
        return None
    who = f", for {whom}" if (whom := alerts.whom(counter.key)) else ""
    window = alerts.per_window(rule).partition(" ")[2]
    what = "it is taken over" if rule.learns_caps else "accept it on its counter's page, or keep the limit"
    return f"{rule.service} allows {stated_cap:,g} {window}, the limit {rule.name} says {cap:,g}{who}: {what}"


def _kept_state(cooled: _Cooled) -> dict[str, Any]:
    """The field `state` to store, if refusals changed `held` or `whole` in it; empty otherwise."""
    counter = cooled.counter
    if cooled.hold == counter.hold and cooled.whole == counter.stored.get("whole", 0):
        return {}
    told = {"held": cooled.hold.state(), "whole": cooled.whole}
    kept = {name: value for name, value in counter.stored.items() if name not in told}
    return {"state": kept | {name: value for name, value in told.items() if value}}


def _message(counter: OpenCounter, cooled: _Cooled) -> str:
    seconds = (cooled.blocked_until or counter.now) - counter.now
    called = f" ({cooled.label})" if cooled.label else ""
    text = f"{alerts.named(counter.rule, counter.key)}: {cooled.reason}{called}; no calls for {alerts.lasting(seconds)}"
    if cooled.hold.until:
        text += (
            f"; it asks to wait for {alerts.lasting(cooled.hold.until - counter.now)}, which is more than its quota "
            "explains: then one call a minute tries whether it is over"
        )
    if cooled.violation.per_day and not counter.rule.hard_reset:
        text += "; no limit here counts the day's quota: add one"
    return text


def _figures(cooled: _Cooled, after: dict[str, Any]) -> dict[str, Any]:
    violation = cooled.violation
    return {
        **after,
        "violated": violation.name,
        "per_day": violation.per_day,
        "held_until": _iso(cooled.hold.until or None),
        "stated_cap": violation.stated_cap,
        "call": cooled.label,
    }


def _by_itself(refusal: Refusal) -> float:
    """How many seconds a call waits if no counter holds it back: longer each time, as the call may never fit."""
    seconds = (refusal.push_back.retry_after or MINUTE) * 2 ** min(refusal.times_before, MAX_DOUBLINGS)
    return spread(seconds, random.random())  # noqa: S311 - protects nothing


def _moment(at: float | None) -> datetime | None:
    return None if at is None else foretold(at)


def _iso(at: float | None) -> str | None:
    return None if at is None else foretold(at).isoformat(timespec="milliseconds")
