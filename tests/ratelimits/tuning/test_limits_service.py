"""Limits are changed soundly, with a trail, and at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from django.db import connection, connections, transaction
from django.db.models.functions import Now
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from queueops.audit.models import AuditEntry
from queueops.core.notify import Channel, notify
from queueops.core.postgres import base
from queueops.core.values.reasons import ReasonRequired
from queueops.tenancy.models import Project, ProjectMove
from queueops.tenancy.moves import ProjectMoved
from ratelimits.errors import InvalidCoolDown, InvalidLimit, LimitChanged, NothingProposed, UnknownCounter, UnknownLimit
from ratelimits.limiter.decide import Call, decide
from ratelimits.limiter.view.gauges import gauges, top_users
from ratelimits.limits import catalogue, overrides
from ratelimits.models import CallTally, Counter, Limit, LimitOverride, QuotaAlert
from ratelimits.subjects import Subject
from ratelimits.tuning import limits, stated_caps, steer_counter
from ratelimits.tuning.upkeep import forget_old
from tests.factories import make_project
from tests.support.audit import entries_written
from tests.support.cases import every_case
from tests.support.processes import database_url, wait_for

pytestmark = pytest.mark.django_db

ACTOR = "user:1"
DAY = 86_400.0
WRITE = Subject("sheets", "write", "acme", "u")


@pytest.fixture(autouse=True)
def _no_rules_of_other_tests() -> Any:
    catalogue.forget()
    yield
    catalogue.forget()


@pytest.fixture
def entries() -> Iterator[list[dict[str, Any]]]:
    """What the audit trail is told."""
    with entries_written() as told:
        yield told


def make_limit(**figures: Any) -> Limit:
    given = {"name": "sheets-write", "service": "sheets", "call_type": "write", "capacity": 10, **figures}
    return Limit.objects.get(pk=limits.create_limit(given, actor=ACTOR).limit_id)


def go(calls: int, subject: Subject = WRITE, **figures: Any) -> list[str]:
    return [one.kind for one in decide([Call(subject, **figures)] * calls)]


def counter() -> Counter:
    return Counter.objects.get()


def test_a_limit_created_here_holds_calls_back_at_once(entries):
    assert go(3) == ["proceed"] * 3
    make_limit(capacity=2)
    assert go(3) == ["proceed", "proceed", "defer"]
    assert (entries[-1]["action"], entries[-1]["actor"]) == ("create_limit", ACTOR)


def test_a_raised_cap_counts_for_the_next_call(entries):
    limit = make_limit(capacity=1)
    assert go(2) == ["proceed", "defer"]
    saved = limits.update_limit(limit.pk, {"capacity": 2}, actor=ACTOR, reason="they raised it")
    assert saved.changed == ("capacity",)
    assert go(2) == ["proceed", "defer"]
    assert entries[-1] == {
        **entries[-1],
        "action": "update_limit",
        "target": "limit sheets-write",
        "before": {"capacity": 1.0},
        "after": {"capacity": 2.0},
        "reason": "they raised it",
    }


def test_a_change_that_changes_nothing_leaves_no_trail(entries):
    limit = make_limit()
    before = len(entries)
    assert limits.update_limit(limit.pk, {"capacity": 10.0}, actor=ACTOR).changed == ()
    assert len(entries) == before


@every_case(("changes", "field"), [
    ({"capacity": float("nan")}, "capacity"), ({"capacity": "many"}, "capacity"), ({"name": "not a slug"}, "name"),
    ({"name": "other"}, "name"), ({"service": ""}, "service"), ({"service": "a\0b"}, "service"),
    ({"call_type": "delete"}, "call_type"), ({"algorithm": "guess"}, "algorithm"),
    ({"headroom_percent": 100}, "headroom_percent"), ({"reset_zone": "x" * 65}, "reset_zone"),
    ({"proposed_capacity": 5}, "proposed_capacity"), ({"id": 5}, "id"),
    ({"algorithm": "token_bucket", "refill_per_second": 5, "provider_quota": 10}, "capacity"),
], undone=True)  # fmt: skip
def test_an_unsound_change_is_refused_at_its_field_and_changes_nothing(changes, field, entries):
    limits.create_limit({"name": "other", "service": "s", "capacity": 1}, actor=ACTOR)
    limit = make_limit()
    before = (list(Limit.objects.values()), len(entries))
    with pytest.raises(InvalidLimit) as caught:
        limits.update_limit(limit.pk, changes, actor=ACTOR)
    assert field in caught.value.fields
    assert (list(Limit.objects.values()), len(entries)) == before


def test_a_bucket_of_which_only_the_quota_is_given_gets_the_figures_that_keep_it():
    limit = make_limit(algorithm="token_bucket", capacity=None, provider_quota=300)
    assert limit.capacity == 9
    assert limit.refill_per_second == pytest.approx(291 / 60.25)
    with pytest.raises(InvalidLimit) as caught:
        make_limit(name="tiny", algorithm="token_bucket", capacity=None, provider_quota=1)
    assert "capacity" in caught.value.fields


def test_a_cap_below_what_is_used_is_allowed_and_warned_of():
    limit = make_limit()
    go(8)
    saved = limits.update_limit(limit.pk, {"capacity": 5}, actor=ACTOR)
    assert "project:acme has used 8 calls of the new cap of 5 already" in saved.warnings[0]
    assert limits.update_limit(limit.pk, {"capacity": 9}, actor=ACTOR).warnings == ()


def test_two_who_looked_at_the_same_limit_do_not_overwrite_each_other():
    limit = make_limit()
    Limit.objects.update(updated_at=Now() - timedelta(minutes=1))
    seen_at = Limit.objects.get().updated_at
    limits.update_limit(limit.pk, {"capacity": 20}, actor=ACTOR, seen_at=seen_at)
    with pytest.raises(LimitChanged):
        limits.update_limit(limit.pk, {"capacity": 30}, actor=ACTOR, seen_at=seen_at)
    assert Limit.objects.get().capacity == 20


def test_a_deleted_limit_lets_everything_go_and_leaves_no_counters(entries):
    limit = make_limit(capacity=1)
    overrides.set_override(limit.pk, "project:globex", capacity=3, actor=ACTOR)
    assert go(2) == ["proceed", "defer"]
    with pytest.raises(ReasonRequired):
        limits.delete_limit(limit.pk, actor=ACTOR, reason=" ")
    limits.delete_limit(limit.pk, actor=ACTOR, reason="their quota is gone")
    assert go(2) == ["proceed", "proceed"]
    assert not Counter.objects.exists()
    assert entries[-1]["before"]["capacity"] == 1.0
    assert entries[-1]["before"]["overrides"] == [{"key": "project:globex", "capacity": 3.0, "refill_per_second": None}]
    with pytest.raises(UnknownLimit):
        limits.delete_limit(limit.pk, actor=ACTOR, reason="again")


def test_changes_of_a_projects_own_limit_are_in_its_trail_and_refused_once_it_has_moved():
    make_project("acme"), make_project("beta")
    own = make_limit(project="acme")
    limits.update_limit(own.pk, {"capacity": 20}, actor=ACTOR)
    limits.update_limit(own.pk, {"project": "beta"}, actor=ACTOR)
    limits.update_limit(own.pk, {"capacity": 30}, actor=ACTOR)
    Project.objects.filter(pk="beta").update(move=ProjectMove.MOVED)
    changes: list[Callable[[], Any]] = [
        lambda: limits.update_limit(own.pk, {"capacity": 40}, actor=ACTOR),
        lambda: limits.update_limit(own.pk, {"project": "acme"}, actor=ACTOR),
        lambda: limits.delete_limit(own.pk, actor=ACTOR, reason="gone"),
        lambda: make_limit(name="another", project="beta"),
    ]
    for change in changes:
        with pytest.raises(ProjectMoved):
            change()
    assert list(Limit.objects.values_list("project", "capacity")) == [("beta", 30.0)]
    Project.objects.filter(pk="beta").update(move=ProjectMove.NONE)
    limits.delete_limit(own.pk, actor=ACTOR, reason="gone")
    assert list(AuditEntry.objects.order_by("id").values_list("action", "project_id")) == [
        ("create_limit", "acme"),
        ("update_limit", "acme"),
        ("update_limit", ""),  # an entry about two projects names none
        ("update_limit", "beta"),
        ("delete_limit", "beta"),
    ]


def test_an_override_counts_for_its_key_alone_until_it_is_deleted(entries):
    limit = make_limit(capacity=1)
    overrides.set_override(limit.pk, "project:acme", capacity=3, actor=ACTOR)
    other = WRITE._replace(project="globex")
    assert go(4) == ["proceed"] * 3 + ["defer"]
    assert go(2, other) == ["proceed", "defer"]
    assert entries[-1]["project_id"] == "acme"
    overrides.set_override(limit.pk, "project:acme", capacity=4, actor=ACTOR)
    assert LimitOverride.objects.get().capacity == 4
    assert go(2) == ["proceed", "defer"]
    assert overrides.delete_override(limit.pk, "project:acme", actor=ACTOR)
    assert not overrides.delete_override(limit.pk, "project:acme", actor=ACTOR)
    assert go(1) == ["defer"]
    with pytest.raises(InvalidLimit) as caught:
        overrides.set_override(limit.pk, "acme", capacity=3, actor=ACTOR)
    assert "key" in caught.value.fields


def test_a_cleared_counter_begins_anew_and_its_alerts_are_resolved(entries):
    make_limit()
    assert go(11) == ["proceed"] * 10 + ["defer"]
    Counter.objects.update(pressure=0.5, pressure_changed_at=Now())
    assert QuotaAlert.objects.filter(resolved_at=None).exists()
    with pytest.raises(ReasonRequired):
        steer_counter.clear_counter(counter().pk, actor=ACTOR, reason="")
    steer_counter.clear_counter(counter().pk, actor=ACTOR, reason="they reset it")
    assert QuotaAlert.objects.exists()
    assert not QuotaAlert.objects.filter(resolved_at=None).exists()
    assert go(10) == ["proceed"] * 10
    assert entries[-1]["action"] == "clear_counter"
    assert entries[-1]["before"]["used"] == 10
    assert entries[-1]["before"]["pressure"] == pytest.approx(0.5, abs=0.01)
    assert entries[-1]["project_id"] == "acme"
    with pytest.raises(UnknownCounter):
        steer_counter.clear_counter("00000001:x", actor=ACTOR, reason="no such thing")


def test_a_counter_that_is_cooled_down_lets_nothing_go_until_the_cool_down_is_ended():
    make_limit()
    go(1)
    steer_counter.cool_down_counter(counter().pk, 3600, actor=ACTOR, reason="they asked us to stop")
    [decision] = decide([Call(WRITE)])
    assert decision.kind == "retry"
    assert decision.retry_at == pytest.approx(decision.now + 3600, abs=60)
    [gauge] = gauges()
    assert gauge.blocked_reason == "by hand: they asked us to stop"
    assert gauge.next_free_at == gauge.blocked_until == counter().blocked_until
    steer_counter.cool_down_counter(counter().pk, 0, actor=ACTOR, reason="they are well again")
    assert go(1) == ["proceed"]


@every_case("seconds", [-1, float("nan"), 1e9, True], undone=True)
def test_a_cool_down_is_bounded(seconds):
    make_limit()
    go(1)
    with pytest.raises(InvalidCoolDown):
        steer_counter.cool_down_counter(counter().pk, seconds, actor=ACTOR, reason="x")
    assert counter().blocked_until is None


def proposing(cap, **figures):
    """A limit whose provider has stated another cap for one of two projects; with that project's counter."""
    limit = make_limit(**figures)
    go(1)
    go(1, WRITE._replace(project="globex"))
    Counter.objects.filter(key="project:acme").update(proposed_capacity=cap, proposed_at=Now())
    return limit, Counter.objects.get(key="project:acme")


BUCKET = {"algorithm": "token_bucket", "capacity": 9, "refill_per_second": 4.85, "provider_quota": 300}


def test_an_accepted_proposal_becomes_the_keys_own_cap_and_nobody_elses(entries):
    limit, counter = proposing(60, **BUCKET)
    stated_caps.accept_proposal(counter.pk, actor=ACTOR)
    limit.refresh_from_db()
    own = LimitOverride.objects.get()
    assert (limit.capacity, limit.provider_quota, own.key, own.capacity) == (9, 300, "project:acme", 1)
    assert own.refill_per_second == pytest.approx(59 / 60.25)
    assert entries[-1]["reason"] == "the provider states a cap of 60"
    with pytest.raises(NothingProposed):
        stated_caps.accept_proposal(counter.pk, actor=ACTOR)
    with pytest.raises(NothingProposed):
        stated_caps.accept_proposal("00000000:nobody", actor=ACTOR)


def test_an_accepted_proposal_of_a_limit_that_counts_all_together_is_its_own():
    limit = make_limit(scope="global")
    go(1)
    Counter.objects.update(proposed_capacity=60, proposed_at=Now())
    stated_caps.accept_proposal(Counter.objects.get().pk, actor=ACTOR)
    limit.refresh_from_db()
    assert (limit.capacity, LimitOverride.objects.count()) == (60, 0)
    assert Counter.objects.get().proposed_capacity is None


def test_a_proposal_too_small_for_a_bucket_stays_proposed():
    limit, counter = proposing(1, **BUCKET)
    with pytest.raises(InvalidLimit) as caught:
        stated_caps.accept_proposal(counter.pk, actor=ACTOR)
    assert "sliding window" in caught.value.fields["algorithm"][0]
    limit.refresh_from_db()
    counter.refresh_from_db()
    assert (limit.capacity, counter.proposed_capacity, LimitOverride.objects.count()) == (9, 1, 0)


def test_a_declined_proposal_is_forgotten_with_a_reason(entries):
    limit, counter = proposing(60)
    stated_caps.decline_proposal(counter.pk, actor=ACTOR, reason="it is a shared quota")
    counter.refresh_from_db()
    assert (limit.capacity, counter.proposed_capacity, LimitOverride.objects.count()) == (10, None, 0)
    assert entries[-1]["before"] == {"proposed_capacity": 60.0}


def test_a_cap_of_its_own_by_hand_settles_what_was_proposed_for_a_key():
    limit, counter = proposing(60)
    overrides.set_override(limit.pk, "project:acme", capacity=50, actor=ACTOR)
    counter.refresh_from_db()
    assert counter.proposed_capacity is None


def test_a_gauge_shows_the_figures_of_its_counter():
    limit = make_limit(notice_percent=60, warning_percent=80)
    go(7)
    go(2, WRITE._replace(project="globex"))
    fullest, other = gauges([limit.pk])
    assert (fullest.key, fullest.used, fullest.available, fullest.capacity) == ("project:acme", 7, 3, 10)
    assert (fullest.percent, fullest.level, fullest.next_free_at) == (70, 60, None)
    assert (other.key, other.used, other.level) == ("project:globex", 2, 0)
    assert gauges(service="other") == []
    go(3)
    full = gauges([limit.pk], most=1)[0]
    assert full.level == 100
    assert full.next_free_at is not None
    assert full.next_free_at > full.updated_at


def test_the_gauge_of_a_bucket_shows_what_it_let_through_of_the_providers_quota():
    limit = make_limit(algorithm="token_bucket", capacity=None, provider_quota=300)
    go(9)
    [gauge] = gauges([limit.pk])
    assert gauge.capacity == 300
    assert gauge.used == pytest.approx(9, abs=0.5)
    assert gauge.available < 9


def test_who_used_a_limit_most_is_told_by_user_and_kind():
    limit = make_limit(capacity=100)
    go(5, kind="sheets.update")
    go(2, WRITE._replace(user="v"), kind="sheets.append")
    go(4, WRITE._replace(project="globex", user=""), kind="sheets.append")
    go(9, WRITE._replace(call_type="read"), kind="sheets.get")
    CallTally.objects.create(
        at=Now() - timedelta(hours=2), service="sheets", call_type="write", project="old", calls=99, tokens=99
    )
    top = top_users(limit)
    assert [(one.name, one.calls) for one in top.users] == [("acme / u", 5), ("globex", 4), ("acme / v", 2)]
    assert [(one.name, one.calls) for one in top.kinds] == [("sheets.append", 6), ("sheets.update", 5)]
    assert not top.partial
    assert [one.name for one in top_users(limit, "project:globex").users] == ["globex"]
    assert top_users(limit, since=timedelta(hours=3)).users[0].name == "old"
    limit.project = "globex"  # it counts this project's calls alone
    assert [(one.name, one.calls) for one in top_users(limit).users] == [("globex", 4)]
    assert [(one.name, one.calls) for one in top_users(limit).kinds] == [("sheets.append", 4)]


@pytest.mark.django_db(transaction=True)
def test_a_change_is_told_to_every_process_when_it_is_committed():
    limit = make_limit()
    with psycopg.connect(database_url(), autocommit=True) as listener:
        listener.execute(f"LISTEN {Channel.LIMITS.value}")
        limits.update_limit(limit.pk, {"capacity": 20}, actor=ACTOR)
        heard = [one.channel for one in listener.notifies(timeout=10, stop_after=1)]
    assert heard == [Channel.LIMITS.value]
    assert [rule.capacity for rule in catalogue.rules()] == [20]


@pytest.mark.django_db(transaction=True)
def test_a_notification_goes_in_one_message_with_the_commit(monkeypatch: pytest.MonkeyPatch):
    """Over a slow line each message is a wait; a rollback takes the notification along."""
    sent: list[bytes] = []
    run = base.DatabaseWrapper._run

    def noting(self: Any, statement: bytes) -> Any:
        sent.append(statement)
        return run(self, statement)

    monkeypatch.setattr(base.DatabaseWrapper, "_run", noting)
    with suppress(ZeroDivisionError), transaction.atomic():
        notify(Channel.READY)
        raise ZeroDivisionError
    with CaptureQueriesContext(connection) as statements, transaction.atomic():
        notify(Channel.LIMITS)
        notify(Channel.LIMITS)
    assert sent == [b"SELECT pg_notify('queueops_limits', ''); COMMIT"]
    assert not [one for one in statements if "notify" in one["sql"]]


@pytest.mark.django_db(transaction=True)
def test_what_a_neighbour_read_before_the_commit_is_not_kept_after_it():
    limit = make_limit()
    with ThreadPoolExecutor(1) as neighbour:
        with transaction.atomic():
            limits.update_limit(limit.pk, {"capacity": 20}, actor=ACTOR)
            assert [rule.capacity for rule in neighbour.submit(_rules).result()] == [10]
        assert [rule.capacity for rule in catalogue.rules()] == [20]


def _rules() -> tuple[catalogue.Rule, ...]:
    try:
        return catalogue.rules()
    finally:
        connections.close_all()


@pytest.mark.django_db(transaction=True)
def test_deleting_a_limit_takes_its_counters_in_the_order_in_which_decisions_do():
    limit = make_limit()
    first, last = (f"{limit.pk:08d}:project:{name}" for name in ("a", "z"))
    for name in (last, first):  # as they lie in the table, the last comes first
        Counter.objects.create(pk=name, limit=limit, key=name)
    with psycopg.connect(database_url()) as decision, ThreadPoolExecutor(1) as pool:
        lock = "SELECT 1 FROM ratelimits_counter WHERE id = %s FOR UPDATE NOWAIT"
        decision.execute(lock, [first])
        deleting = pool.submit(_deleted, limit.pk)
        wait_for(_somebody_waits_for_a_lock)
        decision.execute(lock, [last])
        decision.commit()
        deleting.result(timeout=20)
    assert not Counter.objects.exists()


def test_that_order_is_the_decisions_whatever_the_database_collates_by():
    limit = make_limit()
    with CaptureQueriesContext(connection) as asked:
        limits.delete_limit(limit.pk, actor=ACTOR, reason="gone")
    [locking] = [row["sql"] for row in asked if "FOR UPDATE" in row["sql"] and "ratelimits_counter" in row["sql"]]
    assert 'COLLATE "C" ASC' in locking


def idle_counter(limit: Limit, key: str, *, days: float, **fields: Any) -> str:
    pk = f"{limit.pk:08d}:{key}"
    Counter.objects.create(pk=pk, limit=limit, key=key, **fields)
    Counter.objects.filter(pk=pk).update(updated_at=Now() - timedelta(days=days))
    return key


def test_counters_that_say_nothing_any_more_are_forgotten():
    limit = make_limit()
    past, coming = (timezone.now() + timedelta(days=days) for days in (-1, 1))
    idle_counter(limit, "project:refused", days=8, pressure=0.7, pressure_changed_at=past, blocked_until=past)
    idle_counter(limit, "project:idle", days=8)
    kept = {
        idle_counter(limit, "project:used", days=6),
        idle_counter(limit, "project:cooling", days=8, blocked_until=coming),
        idle_counter(limit, "project:told-of", days=8, alert_level=60),
    }
    assert forget_old() == 2
    assert set(Counter.objects.values_list("key", flat=True)) == kept


@every_case(
    "figures",
    [
        {"window_seconds": 30 * DAY},
        {"algorithm": "token_bucket", "capacity": 100, "refill_per_second": 1 / DAY},
        {"algorithm": "concurrency", "unit": "in_flight", "lease_seconds": 30 * DAY},
    ],
    undone=True,
)
def test_a_counter_is_kept_for_as_long_as_its_limit_remembers(figures):
    limit = make_limit(**figures)
    kept = idle_counter(limit, "project:a", days=29)
    idle_counter(limit, "project:b", days=120)
    assert forget_old() == 1
    assert [row.key for row in Counter.objects.all()] == [kept]


@pytest.mark.django_db(transaction=True)
def test_a_counter_in_use_is_neither_forgotten_nor_waited_for():
    limit = make_limit()
    idle_counter(limit, "project:a", days=8)
    idle_counter(limit, "project:b", days=8)
    with psycopg.connect(database_url()) as decision:
        decision.execute("SELECT 1 FROM ratelimits_counter WHERE key = 'project:a' FOR UPDATE")
        assert forget_old() == 1
    assert Counter.objects.get().key == "project:a"


def _deleted(limit_id: int) -> None:
    try:
        limits.delete_limit(limit_id, actor=ACTOR, reason="gone")
    finally:
        connections.close_all()


def _somebody_waits_for_a_lock() -> bool:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        return bool(cursor.fetchone()[0])
