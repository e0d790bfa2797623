"""The dry run of "an algorithm of limits" in docs/how-to/change-the-code.md: what one that nobody knew needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self, cast

import pytest
from django.urls import reverse

from ratelimits.algorithms.admission import STATE_VERSION, Algorithm, State, stored
from ratelimits.algorithms.figures import NOUNS, Figures, figure
from ratelimits.algorithms.kinds import KINDS
from ratelimits.algorithms.measures import cost_units, microseconds
from ratelimits.errors import InvalidLimit
from ratelimits.limiter.decide import Call, decide
from ratelimits.limiter.view.gauges import gauge_of
from ratelimits.limiter.view.start_forecast import Asked, look_ahead
from ratelimits.limits import catalogue
from ratelimits.limits.validation import safe_figures
from ratelimits.models import Counter, Limit
from ratelimits.subjects import Subject
from ratelimits.tuning import limits
from tests.ratelimits.counting import database_time, kinds
from tests.support.people import signed_in

pytestmark = pytest.mark.django_db

WRITE = Subject("sheets", "write", "acme", "u")
LONG = 1000 * 86_400 * 1_000_000


@dataclass(frozen=True, slots=True)
class Ration(Algorithm):
    """So many calls, and then none for a thousand days."""

    kind: ClassVar = "ration"
    reads: ClassVar = frozenset({"capacity"})

    capacity: float
    ceiling: float | None = None

    @classmethod
    def of(cls, figures: Figures, capacity: float, rate: float, pressure: float) -> Self:
        return cls(capacity * pressure, ceiling=capacity)

    def open(self, state: State, now: float) -> RationMeter:
        return RationMeter(self, state, microseconds(now))

    @classmethod
    def in_words(cls, figures: Figures) -> str:
        return f"{figure(figures.capacity)} {NOUNS[figures.unit]} and no more"


class RationMeter:
    moved = False

    def __init__(self, ration: Ration, state: State, now: int) -> None:
        self.now, self._capacity = now, cost_units(ration.capacity)
        self._used: int = (stored(state, "ration") or {"used": 0})["used"]

    def room_for(self, units: int) -> bool:
        return self._used + units <= self._capacity

    def take(self, units: int) -> int:
        self._used += units
        return self.now

    def line_up(self, units: int) -> int:
        return self.now if self.room_for(units) else self.now + LONG

    def give_back(self, units: int, granted_at: int) -> None:
        self._used = max(0, self._used - units)

    def available(self) -> int:
        return self._capacity - self._used

    def state(self) -> State:
        return {"v": STATE_VERSION, "kind": "ration", "used": self._used}


@pytest.fixture
def ration(monkeypatch: pytest.MonkeyPatch) -> Limit:
    """The four files: its module, its line in kinds.py, its name in the model, and (here not needed) the migration."""
    monkeypatch.setitem(cast("dict[str, type[Algorithm]]", KINDS), Ration.kind, Ration)
    named = Limit._meta.get_field("algorithm")
    monkeypatch.setattr(named, "choices", [*(named.choices or ()), (Ration.kind, "ration")])
    given = {"name": "trial", "service": "sheets", "algorithm": Ration.kind, "capacity": 3}
    limit = Limit.objects.get(pk=limits.create_limit(given, actor="user:1").limit_id)
    catalogue.forget()
    return limit


def test_it_is_set_decided_foreseen_gauged_and_shown(ration: Limit):
    assert kinds(decide([Call(WRITE)] * 5)) == "pppdd"
    counter = Counter.objects.get()
    rule = catalogue.rule_of(ration)
    gauge = gauge_of(counter, rule, database_time())
    assert (gauge.used, gauge.capacity, gauge.percent) == (3, 3, 100)
    [[foreseen]] = look_ahead([Asked(WRITE, 1, None)], now=database_time())
    assert foreseen.rate_per_second is None
    assert safe_figures(ration, 7) == {"capacity": 7, "provider_quota": None}
    page = reverse("admin:ratelimits_limit_change", args=[ration.pk])
    for address in (page, reverse("admin:ratelimits_limit_changelist")):
        assert "3 calls and no more" in signed_in("limits manager").get(address).content.decode()


def test_what_it_does_not_read_is_not_asked_for_and_its_own_figures_are_checked(ration: Limit):
    limits.update_limit(ration.pk, {"window_seconds": None}, actor="user:1")
    with pytest.raises(InvalidLimit) as refused:
        limits.update_limit(ration.pk, {"capacity": -1}, actor="user:1")
    assert set(refused.value.fields) == {"capacity"}
