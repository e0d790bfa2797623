"""What tests of allowances share."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from uuid import UUID, uuid4

import pytest
from django.db import connection

SetClock = Callable[[datetime], None]


@pytest.fixture
def user() -> UUID:
    return uuid4()


@pytest.fixture
def set_clock(db: None) -> SetClock:
    """Set the database's clock, as the statements of allowances read it, for the rest of the test."""

    def set_to(moment: datetime) -> None:
        with connection.cursor() as cursor:
            cursor.execute("CREATE SCHEMA IF NOT EXISTS other_clock")
            cursor.execute(
                "CREATE OR REPLACE FUNCTION other_clock.statement_timestamp() RETURNS timestamptz LANGUAGE sql STABLE"
                " AS $$ SELECT %s::timestamptz $$",
                [moment.isoformat()],
            )
            # Found before the server's own; the test's transaction takes both back.
            cursor.execute("SET search_path = other_clock, public, pg_catalog")

    return set_to
