"""The limits as the limiter reads them: every enabled limit with its overrides, kept for half a second."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.db.models import BooleanField, ExpressionWrapper, Q, QuerySet, Value
from django.db.models.functions import Coalesce
from django.forms.models import model_to_dict

from queueops.core.clock import Now, with_clocks
from queueops.core.postgres.replica import from_primary
from ratelimits.algorithms.admission import Algorithm
from ratelimits.algorithms.kinds import KINDS
from ratelimits.algorithms.measures import with_headroom
from ratelimits.algorithms.modifiers.ramp import Ramp
from ratelimits.algorithms.sliding_window import SlidingWindow
from ratelimits.costs import PER_CALL
from ratelimits.models import Limit, LimitCallType, LimitOverride, ResumeRamp, Unit
from ratelimits.subjects import OF_SERVICE, Subject, counter_id, counter_key

from .alternatives import counted_as, is_pooled
from .resume_ramp import read_ramp

LIMITS_KEPT_SECONDS = 0.5  # a change made by another process is seen at most this late
MIN_SEND_SECONDS = 0.5  # a worker on a busy machine may need this long, however short the slack


@dataclass(frozen=True, slots=True)
class Override:
    """The figures that one key has instead of the limit's. `ends_at` None: the figures stay."""

    capacity: float
    refill_per_second: float | None = None
    ends_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Rule:
    """
    One limit, ready to be applied. The figures are those of `Limit`.

    Attributes:
        ramp: The ramp that every limit follows after a resume; None: all of the cap is used.
    """

    id: int
    name: str
    service: str
    call_type: str
    scope: str
    model: str
    per_model: bool
    unit: str
    algorithm_name: str
    capacity: float
    refill_per_second: float | None
    window_seconds: float | None
    slack_seconds: float | None
    reset_zone: str
    guard_seconds: float
    lease_seconds: float
    headroom_percent: float
    notice_percent: int
    warning_percent: int
    clears_late_seconds: int
    fail_open: bool
    shadow: bool
    learns_caps: bool
    counts_cached: bool = True
    reserves: str = Limit.Reserves.USED
    project: str = ""
    kind: str = ""
    provider_quota: float | None = None
    overrides: Mapping[str, Override] = field(default_factory=dict)
    ramp: Ramp | None = None
    # Algorithms made before, by the key of an override, or "" for all other keys. A new one would check its figures.
    _made: dict[str, Algorithm] = field(default_factory=dict, compare=False, repr=False)

    @property
    def per_call(self) -> bool:
        """Whether every call takes one unit of the limit, whatever the call costs."""
        return self.unit in PER_CALL

    @property
    def reserves_whole(self) -> bool:
        """Whether its provider counts all the output that a call may bring, and gives none of it back."""
        return self.reserves == Limit.Reserves.MAX

    @property
    def hard_reset(self) -> bool:
        """Whether room comes back only at a daily reset."""
        return self.algorithm("").recovers_by_day

    @property
    def seconds_to_send(self) -> float | None:
        """
        How many seconds after its grant a call may be sent, so that its provider counts it no later than this limit.

        Half the slack is for sending late, the other half for the way to the provider.
        """
        algorithm = self.algorithm("")
        if algorithm.counts_in_flight or algorithm.recovers_by_day:
            return None
        return max(MIN_SEND_SECONDS, algorithm.late_seconds / 2)

    def applies_to(self, subject: Subject) -> bool:
        return (
            self.service in ("", subject.service)
            and self.call_type in (LimitCallType.ANY, subject.call_type)
            and self.model in ("", subject.model)
            and self.project in ("", subject.owner)
            and self.kind in ("", subject.kind)
        )

    def key(self, subject: Subject) -> str:
        return counter_key(self.scope, subject, per_model=self.per_model)

    def counter_id(self, subject: Subject) -> str:
        return counter_id(self.id, self.key(subject))

    @property
    def paces(self) -> bool:
        """Whether it spreads calls out. A shadow limit blocks nothing, and a daily quota may be used up at once."""
        return not (self.shadow or self.hard_reset)

    def share(self, now: float) -> float:
        """The part of the cap that a ramp leaves open. A daily quota is open in full: a share would only lose calls."""
        return self.ramp.share(now) if self.ramp is not None and self.paces else 1.0

    def algorithm(self, key: str, pressure: float = 1.0, share: float = 1.0) -> Algorithm:
        """
        Return the algorithm with the figures that hold for one key.

        Args:
            pressure: The part of the cap in use since its provider pushed back, above 0 to 1.
            share: The part of the cap that a ramp leaves open, above 0 to 1.
        """
        if pressure != 1.0 or share != 1.0:
            return self._algorithm(key, round(pressure, 3) * share)
        own = key if key in self.overrides else ""
        if (made := self._made.get(own)) is None:
            made = self._made[own] = self._algorithm(own, 1.0)
        return made

    def _algorithm(self, key: str, pressure: float) -> Algorithm:
        own = self.overrides.get(key)
        capacity = with_headroom(self.capacity if own is None else own.capacity, self.headroom_percent)
        refill = self.refill_per_second if own is None else own.refill_per_second or self.refill_per_second
        rate = None if refill is None else with_headroom(refill, self.headroom_percent)
        return KINDS[self.algorithm_name].of(self, capacity, rate or 0.0, pressure)

    def rate_per_second(self, key: str, pressure: float = 1.0) -> float | None:
        """Return the pace, in the limit's unit, at which a queue behind this limit drains; None: calls set the pace."""
        return self.algorithm(key, pressure).rate_per_second


def rule_of(limit: Limit, overrides: Mapping[str, Override] | None = None, ramp: Ramp | None = None) -> Rule:
    """Return the rule of a limit, stored or hypothetical."""
    figures = model_to_dict(limit)
    names = Rule.__dataclass_fields__.keys() - {"id", "algorithm_name", "overrides", "ramp", "name", "_made"}
    return Rule(
        id=limit.pk or 0,
        name=limit.name,
        algorithm_name=limit.algorithm,
        overrides=dict(overrides or {}),
        ramp=ramp,
        **{name: figures[name] for name in names},
    )


def rules_of(limits: Sequence[Limit]) -> list[Rule]:
    """Return the rules of stored limits with their overrides and the ramp, in order; two statements for all of them."""
    return _rules_of(limits, _ramp_now())


def _rules_of(limits: Sequence[Limit], ramp: Ramp | None) -> list[Rule]:
    overrides = overrides_of([limit.pk for limit in limits])
    return [rule_of(limit, overrides.get(limit.pk), ramp) for limit in limits]


def _ramp_now() -> Ramp | None:
    found = read_ramp()
    return found[0] if found else None


RAMP_ID = 0  # no limit has this id
RAMP_LEASE_SECONDS = 600.0


def _rule_of_ramp(ramp: Ramp) -> Rule:
    """The rule for services that no limit paces: it caps their calls in flight by what executors can carry out."""
    slots = Limit(
        name="ramp",
        scope=OF_SERVICE,
        unit=Unit.IN_FLIGHT,
        algorithm=Limit.Algorithm.CONCURRENCY,
        capacity=ramp.slots,
        lease_seconds=RAMP_LEASE_SECONDS,
    )
    return rule_of(slots, ramp=ramp)


def overrides_of(limit_ids: Collection[int]) -> dict[int, dict[str, Override]]:
    """Return the figures that single keys have instead of their limit's, by limit and key."""
    found: dict[int, dict[str, Override]] = {}
    for row in overrides_in_force(LimitOverride.objects.filter(limit_id__in=limit_ids)):
        found.setdefault(row.limit_id, {})[row.key] = Override(row.capacity, row.refill_per_second, row.ends_at)
    return found


def overrides_in_force(rows: QuerySet[LimitOverride]) -> list[LimitOverride]:
    """
    Return overrides with the figures that hold now; do not save them.

    An override that is over has the figures that hold after its end. The database compares the end at each reading, so
    an override ends on time even while house-keeping does not run.
    """
    is_over = ExpressionWrapper(Q(ends_at__lte=Now()), output_field=BooleanField())
    read = rows.annotate(is_over=Coalesce(is_over, Value(value=False)))
    return [one for row in read if (one := after_end(row) if row.is_over else row) is not None]


def after_end(row: LimitOverride) -> LimitOverride | None:
    """The override that its key has after this one's end; None: the limit's own figures."""
    if row.comes_back_to is None:
        return None
    return LimitOverride(pk=row.pk, limit_id=row.limit_id, key=row.key, **row.comes_back_to)


class _Kept:
    """The limits as this process last read them."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.read_at = float("-inf")
        self.rules: tuple[Rule, ...] = ()
        self.of_ramp: Rule | None = None
        self.by_subject: dict[Subject, tuple[Rule, ...]] = {}


_kept = _Kept()
MAX_SUBJECTS = 50_000  # subjects remembered between two reads; there may be many users


def rules() -> tuple[Rule, ...]:
    """Return every enabled limit, by id, as read at most LIMITS_KEPT_SECONDS ago."""
    if time.monotonic() - _kept.read_at < LIMITS_KEPT_SECONDS:
        return _kept.rules
    read_at = time.monotonic()
    found, ramp = _read()
    with _kept.lock:
        if found != _kept.rules or len(_kept.by_subject) > MAX_SUBJECTS:
            _kept.rules, _kept.by_subject = found, {}
        _kept.of_ramp = ramp
        _kept.read_at = read_at
    return found


def rules_for(subject: Subject, *, queued: bool = False) -> tuple[Rule, ...]:
    """
    Return the limits that count a call, by id.

    Args:
        queued: The call comes from a queue. A ramp then paces the call's service if no limit does.
    """
    known = rules()
    if (applied := _kept.by_subject.get(subject)) is None:
        applied = tuple(rule for rule in known if rule.applies_to(subject))
        with _kept.lock:
            if _kept.rules is known:
                _kept.by_subject[subject] = applied
    of_ramp = _kept.of_ramp
    if of_ramp is None or not queued or any(rule.paces for rule in applied):
        return applied
    return (of_ramp, *applied)


def seconds_to_send(subject: Subject) -> float | None:
    """Return how long after its grant a subject's call may be sent; None: no limit counts it by time."""
    stated = (rule.seconds_to_send for rule in rules_for(subject) if not rule.shadow)
    return min((seconds for seconds in stated if seconds is not None), default=None)


def windows_of(subject: Subject, *, in_tokens: bool = False) -> list[tuple[str, float]]:
    """
    Return the counters and capacities of the sliding windows that count a subject's calls.

    A pool has one window, the sum of its members' smallest windows, or none if a member has no window.

    Args:
        in_tokens: False: windows that count calls one by one; True: windows that count by cost.
    """
    if is_pooled(subject):
        members = [
            min((size for _, size in windows_of(one, in_tokens=in_tokens)), default=0.0) for one in counted_as(subject)
        ]
        name = f"{subject.service}/{subject.call_type}/{subject.project}/{subject.model}"
        return [(name, sum(members))] if members and all(members) else []
    return [
        (rule.counter_id(subject), algorithm.capacity)
        for rule in rules_for(subject)
        if rule.per_call != in_tokens
        and not rule.shadow
        and isinstance(algorithm := rule.algorithm(rule.key(subject)), SlidingWindow)
    ]


def limited_services() -> frozenset[str]:
    """Return the services that have an enabled limit."""
    return frozenset(rule.service for rule in rules() if rule.service)


@dataclass(frozen=True, slots=True)
class CountedCalls:
    """
    The calls that some enabled limit counts.

    Attributes:
        kinds: The kinds that a limit names.
        of_any_service: Project and kind of each limit that names no service; an empty name stands for all.
    """

    services: frozenset[str]
    kinds: frozenset[str]
    of_any_service: frozenset[tuple[str, str]]

    def counts(self, service: str, *, project: str, kind: str) -> bool:
        if service in self.services or not self.of_any_service:  # quick, as it runs for each job of a batch
            return service in self.services
        return any(of_project in ("", project) and of_kind in ("", kind) for of_project, of_kind in self.of_any_service)

    def kind_of(self, kind: str) -> str:
        """The kind that a job's subject has: empty unless some limit names it."""
        return kind if kind in self.kinds else ""


def counted() -> CountedCalls:
    """Return which calls limits count now."""
    known = rules()
    return CountedCalls(
        services=limited_services(),
        kinds=frozenset(rule.kind for rule in known if rule.kind),
        of_any_service=frozenset((rule.project, rule.kind) for rule in known if not rule.service),
    )


def rule_of_ramp() -> Rule | None:
    """Return the ramp's rule for queued calls that no limit paces; None: there is no ramp."""
    rules()
    return _kept.of_ramp


def last_known_rules() -> tuple[Rule, ...]:
    """Return the limits as read last, however long ago, without asking the database."""
    return _kept.rules


def forget() -> None:
    """Make the next call read the limits again. Call this after changing a limit."""
    _kept.read_at = float("-inf")


# One statement, as every submission over a slow connection may wait for it. If there is no limit, its only row has the
# ramp alone.
LIMITS_AND_RAMP = with_clocks("""
    SELECT stored.*, ramp.id AS ramp_id, ramp.started_at AS ramp_started_at, ramp.over_seconds, ramp.held_share,
           ramp.slots, {{statement_now}} AS read_at
    FROM (SELECT) AS once
    LEFT JOIN ratelimits_limit stored ON stored.enabled
    LEFT JOIN ratelimits_resumeramp ramp ON true
    ORDER BY stored.id
""")


@from_primary
def _read() -> tuple[tuple[Rule, ...], Rule | None]:
    rows: list[Any] = list(Limit.objects.raw(LIMITS_AND_RAMP))
    found, ramp = rows[0], None
    if found.ramp_id is not None:
        stored = ResumeRamp(found.ramp_id, found.ramp_started_at, found.over_seconds, found.held_share, found.slots)
        ramp = stored.in_force(found.read_at)
    rules = tuple(_rules_of([row for row in rows if row.pk is not None], ramp))
    return rules, _rule_of_ramp(ramp) if ramp else None
