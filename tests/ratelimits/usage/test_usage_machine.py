"""Random histories of an allowance on the real database against a model; after every step the ledger agrees."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.db.models.functions import Now
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ratelimits.errors import InvalidCorrection, QuotaExceeded
from ratelimits.models import UsageReservation, UsageTracking
from ratelimits.usage.allowances import remove_override, set_allowance, set_override
from ratelimits.usage.ingest import Reported
from ratelimits.usage.ledger import check_ledger, correct
from ratelimits.usage.release import cancel, expire_reservations
from ratelimits.usage.reserve import reserve
from tests.factories import make_project
from tests.ratelimits.usage.reports import report, send, statuses

pytestmark = pytest.mark.proves("R11")

ACTOR = "user:1"
USERS = [UUID(int=number) for number in (1, 2, 3)]
AGES = [timedelta(), timedelta(days=33), timedelta(days=36), timedelta(minutes=-10)]
numbers = count()

users = st.sampled_from(USERS)
amounts = st.integers(1, 12)
indexes = st.integers(0, 1_000)
quotas = st.integers(0, 30)
fresh_events = st.fixed_dictionaries(
    {"user": users, "tokens": st.integers(0, 12), "ago": st.sampled_from(AGES), "names": st.none() | indexes}
)


@dataclass
class Held:
    """What the model knows of a reservation."""

    id: UUID
    user: UUID
    month: str
    amount: int
    key: str | None
    status: str = "active"


@dataclass
class Month:
    used: int = 0
    reserved: int = 0


@dataclass
class Model:
    quota: int = 20
    strict: bool = True
    overrides: dict[UUID, int] = field(default_factory=dict)
    months: dict[tuple[UUID, str], Month] = field(default_factory=dict)
    held: list[Held] = field(default_factory=list)
    counted: set[UUID] = field(default_factory=set)

    def quota_of(self, user: UUID) -> int:
        return self.overrides.get(user, self.quota)

    def month(self, user: UUID, month: str) -> Month:
        return self.months.setdefault((user, month), Month())

    def release(self, held: Held, status: str) -> None:
        held.status = status
        self.month(held.user, held.month).reserved -= held.amount

    def ingest(self, event: Reported, quotas: dict[tuple[UUID, str], int]) -> str:
        """What becomes of one event that comes by itself."""
        age = datetime.now(UTC) - event.occurred_at
        if age > timedelta(days=35):
            return "too_old"
        if age < timedelta(minutes=-5):
            return "from_future"
        if event.event_id in self.counted:
            return "duplicate"
        self.counted.add(event.event_id)
        named = next((one for one in self.held if (one.id, one.user) == (event.reservation_id, event.user_id)), None)
        name = named.month if named else f"{event.occurred_at:%Y-%m}"
        covered = named.amount if named and named.status == "active" else 0
        if named and covered:
            self.release(named, "confirmed")
        month = self.month(event.user_id, name)
        month.used += event.tokens
        quota = quotas.get((event.user_id, name), self.quota_of(event.user_id))
        return "over_limit" if month.used + month.reserved > quota and event.tokens > covered else "accepted"


class Ledger(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.project = f"ledger-{next(numbers)}"
        self.model = Model()
        self.sent: list[Reported] = []

    @initialize()
    def begin(self) -> None:
        with connection.cursor() as cursor:
            cursor.execute("SET synchronous_commit = off")  # thousands of commits, none of them to be kept
        make_project(self.project)
        self.set_allowance()

    def set_allowance(self) -> None:
        set_allowance(
            self.project,
            unit="tokens",
            quota=self.model.quota,
            policy="strict" if self.model.strict else "record_overage",
            time_zone="UTC",
            reservation_seconds=300,
            actor=ACTOR,
        )

    def past_quotas(self) -> dict[tuple[UUID, str], int]:
        """Months before this one keep the quota of their first use."""
        rows = UsageTracking.objects.filter(project=self.project, month_year__lt=f"{datetime.now(UTC):%Y-%m}")
        return {(user, month): quota for user, month, quota in rows.values_list("user_id", "month_year", "quota")}

    # What apps do.

    @rule(user=users, amount=amounts, has_key=st.booleans())
    def reserve(self, user: UUID, amount: int, has_key: bool) -> None:
        key = str(uuid4()) if has_key else None
        month = self.model.months.get((user, f"{datetime.now(UTC):%Y-%m}"), Month())
        left = self.model.quota_of(user) - month.used - month.reserved
        if self.model.strict and amount > left:
            with pytest.raises(QuotaExceeded) as refused:
                reserve(project_id=self.project, user_id=user, amount=amount, idempotency_key=key)
            assert refused.value.details["remaining"] == max(0, left)
            self.model.month(user, f"{datetime.now(UTC):%Y-%m}")
            return
        made = reserve(project_id=self.project, user_id=user, amount=amount, idempotency_key=key)
        assert (made.remaining, made.over_limit, made.replayed) == (max(0, left - amount), amount > left, False)
        self.model.held.append(Held(made.reservation_id, user, made.month, amount, key))
        self.model.month(user, made.month).reserved += amount

    @precondition(lambda self: any(held.key for held in self.model.held))
    @rule(index=indexes)
    def reserve_again(self, index: int) -> None:
        keyed = [held for held in self.model.held if held.key]
        held = keyed[index % len(keyed)]
        made = reserve(project_id=self.project, user_id=held.user, amount=held.amount, idempotency_key=held.key)
        assert (made.reservation_id, made.replayed) == (held.id, True)

    @rule(given=st.lists(fresh_events, max_size=6), again=st.lists(indexes, max_size=4), data=st.data())
    def ingest(self, given: list[dict[str, object]], again: list[int], data: st.DataObject) -> None:
        """New events, some of which name a reservation of anybody, among events that were sent before."""
        made = [self.make(**one) for one in given]  # type: ignore[arg-type]
        known = [*self.sent, *made]
        batch = made + [known[index % len(known)] for index in again if known]
        batch = data.draw(st.permutations(batch))
        quotas = self.past_quotas()
        expected = [self.model.ingest(event, quotas) for event in batch]
        assert statuses(send(*batch, project=self.project)) == expected
        self.sent += made

    def make(self, *, user: UUID, tokens: int, ago: timedelta, names: int | None) -> Reported:
        held = self.model.held[names % len(self.model.held)] if names is not None and self.model.held else None
        mine = held.user if held and tokens % 3 else user
        return report(mine, tokens, ago=ago, reservation=held.id if held else None)

    @precondition(lambda self: self.model.held)
    @rule(index=indexes)
    def cancel(self, index: int) -> None:
        held = self.model.held[index % len(self.model.held)]
        was_active = held.status == "active"
        if was_active:
            self.model.release(held, "cancelled")
        cancelled = cancel(held.id, project_id=self.project)
        assert (cancelled.status, cancelled.released) == (held.status, was_active)

    @precondition(lambda self: self.model.held)
    @rule(chosen=st.lists(indexes, min_size=1, max_size=5))
    def expire(self, chosen: list[int]) -> None:
        late = {held.id: held for held in (self.model.held[index % len(self.model.held)] for index in chosen)}
        expire_reservations()  # what other tests have left, and is over by now
        UsageReservation.objects.filter(pk__in=late).update(expires_at=Now())
        active = [held for held in late.values() if held.status == "active"]
        assert expire_reservations() == len(active)
        for held in active:
            self.model.release(held, "expired")

    # What operators do.

    @precondition(lambda self: self.model.months)
    @rule(index=indexes, amount=st.integers(-8, 8).filter(bool))
    def correct(self, index: int, amount: int) -> None:
        user, name = list(self.model.months)[index % len(self.model.months)]
        month = self.model.months[user, name]
        if month.used + amount < 0:
            with pytest.raises(InvalidCorrection):
                correct(self.project, user, name, amount, actor=ACTOR, reason="a test")
        else:
            correct(self.project, user, name, amount, actor=ACTOR, reason="a test")
            month.used += amount

    @rule(quota=quotas, strict=st.booleans())
    def change_allowance(self, quota: int, strict: bool) -> None:
        self.model.quota, self.model.strict = quota, strict
        self.set_allowance()

    @rule(user=users, quota=st.none() | quotas)
    def change_override(self, user: UUID, quota: int | None) -> None:
        if quota is None:
            assert remove_override(self.project, user, actor=ACTOR) == (user in self.model.overrides)
            self.model.overrides.pop(user, None)
        else:
            set_override(self.project, user, quota=quota, actor=ACTOR)
            self.model.overrides[user] = quota

    # What holds after every step.

    @invariant()
    def months_are_as_the_model_says(self) -> None:
        rows = UsageTracking.objects.filter(project=self.project)
        current = f"{datetime.now(UTC):%Y-%m}"
        found = {(row.user_id, row.month_year): row for row in rows}
        assert found.keys() == self.model.months.keys()
        for key, month in self.model.months.items():
            row = found[key]
            assert (row.used, row.reserved) == (month.used, month.reserved)
            assert row.overage == max(0, row.used - row.quota)
            assert key[1] != current or row.quota == self.model.quota_of(key[0])

    @invariant()
    def the_ledger_agrees(self) -> None:
        assert check_ledger(self.project).differences == []
        statuses = dict(UsageReservation.objects.filter(project=self.project).values_list("pk", "status"))
        assert statuses == {held.id: held.status for held in self.model.held}


@pytest.mark.django_db
def test_random_histories_follow_the_model_and_the_ledger_agrees():
    run_state_machine_as_test(
        Ledger,
        settings=settings(max_examples=10, stateful_step_count=20, suppress_health_check=list(HealthCheck)),
    )


@pytest.mark.soak
@pytest.mark.django_db(transaction=True)
def test_long_random_histories_follow_the_model():
    run_state_machine_as_test(
        Ledger,
        settings=settings(
            max_examples=150, stateful_step_count=50, derandomize=False, suppress_health_check=list(HealthCheck)
        ),
    )
