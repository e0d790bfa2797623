"""Times are compared by the database's clock, and a test may move it."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from uuid import uuid4

import pytest
from django.contrib.contenttypes.models import ContentType
from django.db import connection

from queueops.core.clock import CLOCKS, Now, TransactionNow, database_now, with_clocks
from queueops.core.sql import run_sql
from tests.support.clock import MovedClock

pytestmark = pytest.mark.django_db
AN_HOUR = 3600


def ahead() -> dict[str, int]:
    """By how many seconds each clock is ahead of PostgreSQL's."""
    with connection.cursor() as cursor:
        cursor.execute(with_clocks("SELECT clock_timestamp(), {{now}}, {{clock_now}}, {{statement_now}}"))
        real, *moments = cursor.fetchone()
    read = dict(zip(CLOCKS, moments, strict=True)) | {"database_now": datetime.fromtimestamp(database_now(), UTC)}
    for expression in (Now(), TransactionNow()):
        [read[type(expression).__name__]] = ContentType.objects.values_list(expression)[:1].get()
    # Rounded to minutes: a transaction, whose start is one of them, may be some seconds old.
    return {name: 60 * round((at - real).total_seconds() / 60) for name, at in read.items()}


def test_every_clock_is_postgresql_s_own():
    assert CLOCKS == {"now": "now()", "clock_now": "clock_timestamp()", "statement_now": "statement_timestamp()"}
    assert set(ahead().values()) == {0}


def test_a_test_moves_all_of_them_on_and_on_for_every_connection(moving_clock: MovedClock):
    moving_clock.move(seconds=AN_HOUR)
    moving_clock.move(seconds=AN_HOUR)
    assert set(ahead().values()) == {2 * AN_HOUR}
    elsewhere: list[dict[str, int]] = []

    def look() -> None:
        elsewhere.append(ahead())
        connection.close()

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert set(elsewhere[0].values()) == {2 * AN_HOUR}
    moving_clock.restore()
    assert set(ahead().values()) == {0}


def test_a_lease_ends_where_the_clock_has_passed_it(moving_clock: MovedClock):
    first, second = ({"duty": "promote", "holder": uuid4(), "term": 30.0} for _ in range(2))
    assert run_sql("jobs", "take_duty", first)
    moving_clock.move(seconds=29)
    assert not run_sql("jobs", "take_duty", second)
    moving_clock.move(seconds=2)
    assert run_sql("jobs", "take_duty", second)
