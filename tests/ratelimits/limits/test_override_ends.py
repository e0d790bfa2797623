"""Overrides that end: on time by the database's clock, with what was there before, told of where work leans on them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from queueops.audit.models import AuditEntry
from queueops.core.clock import database_moment
from queueops.core.values.ends import read_end
from ratelimits.errors import InvalidLimit
from ratelimits.limiter.decide import Call, decide
from ratelimits.limiter.view.gauges import gauges
from ratelimits.limits import catalogue, overrides
from ratelimits.models import LimitOverride, QuotaAlert
from ratelimits.subjects import Subject
from ratelimits.tuning import limits
from ratelimits.tuning.watch_overrides import watch_overrides

pytestmark = pytest.mark.django_db

ACTOR, KEY = "user:1", "project:acme"
WRITE = Subject("sheets", "write", "acme", "u")
HOUR = timedelta(hours=1)


@pytest.fixture
def limit_id() -> Any:
    catalogue.forget()
    yield limits.create_limit({"name": "sheets", "service": "sheets", "capacity": 10}, actor=ACTOR).limit_id
    catalogue.forget()


def cap() -> float:
    catalogue.forget()  # as every process does twice a second
    return catalogue.rules()[0].algorithm(KEY).capacity


def override(limit_id: int, capacity: float, **given: Any) -> None:
    overrides.set_override(limit_id, KEY, capacity=capacity, actor=ACTOR, **given)


def let_it_end() -> None:
    """What the clock does; no process is told, and none keeps house."""
    LimitOverride.objects.update(ends_at=database_moment())


def test_it_ends_by_the_clock_alone_and_leaves_what_was_there_before(limit_id):
    override(limit_id, 20, ends_at=database_moment() + HOUR)
    assert cap() == 20
    let_it_end()
    assert cap() == 10
    override(limit_id, 15, note="theirs")  # this one stays
    override(limit_id, 40, ends_at=database_moment() + HOUR)
    override(limit_id, 50, ends_at=database_moment() + 2 * HOUR)  # what it comes back to is not the 40
    assert cap() == 50
    let_it_end()
    assert cap() == 15
    watch_overrides()
    assert LimitOverride.objects.values_list("capacity", "ends_at", "comes_back_to", "note").get() == (
        15,
        None,
        None,
        "theirs",
    )
    assert cap() == 15
    entry = AuditEntry.objects.order_by("-pk")[0]
    assert (entry.action, entry.actor, entry.project_id) == ("end_override", "system", "acme")
    before, after = entry.before or {}, entry.after or {}
    assert (before["capacity"], after["capacity"]) == (50, 15)
    assert before["ends_at"]


def test_it_is_ended_by_hand_and_by_a_lasting_one(limit_id):
    override(limit_id, 20, ends_at=database_moment() + HOUR)
    assert overrides.end_override(limit_id, KEY, actor=ACTOR)
    assert cap() == 10
    assert not overrides.end_override(limit_id, KEY, actor=ACTOR)
    override(limit_id, 20, ends_at=database_moment() + HOUR)
    override(limit_id, 30)
    assert not overrides.end_override(limit_id, KEY, actor=ACTOR)
    assert cap() == 30


def test_an_end_that_is_over_or_too_far_away_is_refused_with_what_time_it_is(limit_id):
    for ends_at, told in ((database_moment() - HOUR, "is over: it is"), (database_moment() + 800 * HOUR, "At most 31")):
        with pytest.raises(InvalidLimit) as caught:
            override(limit_id, 20, ends_at=ends_at)
        assert told in caught.value.fields["ends_at"][0]
    assert not LimitOverride.objects.exists()


def test_an_alert_opens_where_more_is_used_than_holds_afterwards_and_resolves_with_it(limit_id):
    override(limit_id, 100, ends_at=database_moment() + timedelta(minutes=20))
    decide([Call(WRITE)] * 12)
    watch_overrides()
    assert not QuotaAlert.objects.filter(kind="override").exists()  # there is time
    LimitOverride.objects.update(ends_at=database_moment() + timedelta(minutes=10))
    watch_overrides()
    watch_overrides()
    alert = QuotaAlert.objects.get(kind="override")
    assert "12 calls lean on it; 10 hold from then on" in alert.message
    assert alert.projects == {"acme"}
    [gauge] = gauges()
    assert (gauge.capacity, gauge.override_ends_at) == (100, LimitOverride.objects.get().ends_at)
    override(limit_id, 100, ends_at=database_moment() + HOUR)
    watch_overrides()
    assert QuotaAlert.objects.get(kind="override").resolved_at is not None


def test_the_command_takes_times_as_people_write_them(limit_id, capsys):
    call_command("override_limit", "sheets", KEY, "25", "--until", "2h", "--reason", "late")
    assert cap() == 25
    assert "has 25 until" in capsys.readouterr().out
    call_command("override_limit", "sheets", KEY, "--end")
    assert cap() == 10
    for arguments, told in (
        (["sheets", KEY, "25", "--until", "2020-01-01 06:00"], "is over"),
        (["sheets", KEY, "25", "--until", "soon"], "how long: 90m, 2h, 1d"),
        (["sheets", KEY, "25"], "--until"),
        (["sheets", "acme", "25", "--until", "1h"], "project:acme"),
        (["sheet", KEY, "25", "--until", "1h"], "no limit"),
    ):
        with pytest.raises(CommandError, match=told):
            call_command("override_limit", *arguments)


def test_a_time_alone_is_its_next_one():
    now = datetime(2026, 11, 28, 18, 30, tzinfo=UTC)
    written = {
        "06:00": "2026-11-29 06:00",
        "19:00": "2026-11-28 19:00",
        "18:30": "2026-11-29 18:30",
        "90m": "2026-11-28 20:00",
        "1.5h": "2026-11-28 20:00",
        "2026-12-01 06:00": "2026-12-01 06:00",
    }
    assert {text: f"{read_end(text, now=now):%Y-%m-%d %H:%M}" for text in written} == written
