"""Quotas in force at the providers: how much each key used in its window, and which calls were refused."""

import math
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from sandbox.quotas.windows import SlidingCount, Window, WindowRule

MAX_COUNTED_KEYS = 10_000
MAX_SPANS = 1_440

QuotaKey = tuple[tuple[str, str], ...]
Unit = Literal["requests", "tokens", "input_tokens", "output_tokens"]


@dataclass(frozen=True, slots=True)
class Quota:
    """
    One quota of a service, under the name that the service's errors use.

    A hidden second consumer steadily uses `hidden_share` of the quota. A sliding window always holds all of that share.
    A window that resets fills with it as time goes on, as far as there is room.
    """

    service: str
    name: str
    unit: Unit
    capacity: int
    rule: WindowRule
    hidden_share: float = 0.0


@dataclass(frozen=True, slots=True)
class QuotaCost:
    """The cost of one call under one quota; `key` says for whom it is counted, such as project and user."""

    quota: Quota
    key: QuotaKey
    cost: int = 1


@dataclass(frozen=True, slots=True)
class ExhaustedQuota:
    """A quota without room. `wait_seconds` is infinite when the cost exceeds the whole quota."""

    charge: QuotaCost
    used: int
    wait_seconds: float


@dataclass(slots=True)
class _Span:
    starts_at: float
    ends_at: float
    limit: int
    used: int = 0
    accepted_calls: int = 0
    rejected_calls: int = 0


@dataclass(slots=True)
class _Figures:
    """The demand of one key on one quota; `peak` is the most accepted in any interval as long as the window."""

    accepted_calls: int = 0
    accepted_cost: int = 0
    rejected_calls: int = 0
    peak: int = 0
    spans: deque[_Span] = field(default_factory=lambda: deque(maxlen=MAX_SPANS))


class _Account:
    """The use of one quota by one key."""

    def __init__(self, rule: WindowRule) -> None:
        self.rule = rule
        self.window: Window = rule.make()
        # A quota of a day needs no sliding count to find its fullest interval: the day's own window is exact.
        self._recent: Window = rule.make() if rule.zone else SlidingCount(rule.seconds)
        self.figures = _Figures()

    def used(self, quota: Quota, now: float) -> int:
        """Return the amount that counts against the quota, with the hidden consumer's part."""
        own = self.window.used(now)
        return own + min(self._hidden(quota, now), max(0, quota.capacity - own))

    def wait_seconds(self, cost: int, quota: Quota, now: float) -> float:
        """Return 0 when the cost fits beside the hidden consumer, else the seconds until it does."""
        hidden = self._hidden(quota, now)
        if not quota.hidden_share or self.rule.mode == "sliding":
            return self.window.wait_seconds(cost, capacity=quota.capacity - hidden, now=now)
        if self.window.used(now) + hidden + cost <= quota.capacity:
            return 0.0
        return (1 - self.window.elapsed(now)) * self.rule.seconds if cost <= quota.capacity else math.inf

    def _hidden(self, quota: Quota, now: float) -> int:
        if not quota.hidden_share:
            return 0
        return int(quota.hidden_share * quota.capacity * self.window.elapsed(now))

    def note(self, charge: QuotaCost, now: float, *, accepted: bool, violated: bool) -> None:
        figures = self.figures
        starts_at, ends_at = self.rule.span(now)
        if not figures.spans or figures.spans[-1].starts_at != starts_at:
            figures.spans.append(_Span(starts_at, ends_at, charge.quota.capacity))
        span = figures.spans[-1]
        span.limit = charge.quota.capacity
        if accepted:
            self._recent.add(charge.cost, now)
            figures.accepted_calls += 1
            figures.accepted_cost += charge.cost
            figures.peak = max(figures.peak, self._recent.used(now))
            span.used += charge.cost
            span.accepted_calls += 1
        elif violated:
            figures.rejected_calls += 1
            span.rejected_calls += 1


_Name = tuple[str, str, QuotaKey]


class QuotaBook:
    """Every quota with every key that used it; beyond MAX_COUNTED_KEYS the least recently used key is dropped."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self._accounts: OrderedDict[_Name, _Account] = OrderedDict()
        self._quotas: dict[tuple[str, str], Quota] = {}
        self._keys_dropped = 0

    def clear_figures(self) -> None:
        """Reset the reported figures; the used part of quotas stays used."""
        for account in self._accounts.values():
            account.figures = _Figures()

    def charge(
        self, charges: Sequence[QuotaCost], now: float, *, rejected_calls_count: bool = False
    ) -> tuple[ExhaustedQuota, ...]:
        """
        Charge a call under all its quotas, or under none when one has no room.

        With `rejected_calls_count` a refused call is still charged under its quotas of requests.
        """
        accounts = [self._account(charge) for charge in charges]
        violations = []
        for charge, account in zip(charges, accounts, strict=True):
            wait = account.wait_seconds(charge.cost, charge.quota, now)
            if wait > 0:
                violations.append(ExhaustedQuota(charge, account.used(charge.quota, now), wait))
        full = {violation.charge.quota.name for violation in violations}
        for charge, account in zip(charges, accounts, strict=True):
            if not violations or (rejected_calls_count and charge.quota.unit == "requests"):
                account.window.add(charge.cost, now)
            account.note(charge, now, accepted=not violations, violated=charge.quota.name in full)
        return tuple(violations)

    def settle(self, charge: QuotaCost, actual: int, *, at: float, now: float) -> None:
        """Correct a charge that was made at the moment `at`, once the call has ended and its cost is known."""
        account = self._account(charge)
        account.window.amend(at=at, cost=charge.cost, actual=actual, now=now)
        account.figures.accepted_cost += actual - charge.cost

    def room(self, charge: QuotaCost, now: float) -> tuple[int, float]:
        """Return the room that is left in a quota, and the seconds until all of it is free again."""
        account, capacity = self._account(charge), charge.quota.capacity
        left = max(0, capacity - account.used(charge.quota, now))
        return left, account.window.wait_seconds(capacity, capacity=capacity, now=now)

    def report(self, service: str, now: float) -> dict[str, Any]:
        """Return the figures of each key under each quota of a service, by the quota's name."""
        quotas = []
        for (owner, name, key), account in sorted(self._accounts.items(), key=lambda item: item[0][:2]):
            if owner != service:
                continue
            quota, figures = self._quotas[owner, name], account.figures
            quotas.append(
                {
                    "quota": name,
                    "unit": quota.unit,
                    "key": dict(key),
                    "limit": quota.capacity,
                    "used_now": account.window.used(now),
                    "accepted_calls": figures.accepted_calls,
                    "accepted_cost": figures.accepted_cost,
                    "rejected_calls": figures.rejected_calls,
                    "peak": figures.peak,
                    "windows": [{name: getattr(span, name) for name in _Span.__slots__} for span in figures.spans],
                }
            )
        return {"service": service, "quotas": quotas, "keys_dropped": self._keys_dropped}

    def _account(self, charge: QuotaCost) -> _Account:
        quota = charge.quota
        name = (quota.service, quota.name, charge.key)
        self._quotas[quota.service, quota.name] = quota
        account = self._accounts.get(name)
        if account is None or account.rule != quota.rule:
            account = self._accounts[name] = _Account(quota.rule)
        self._accounts.move_to_end(name)
        if len(self._accounts) > MAX_COUNTED_KEYS:
            self._accounts.popitem(last=False)
            self._keys_dropped += 1
        return account
