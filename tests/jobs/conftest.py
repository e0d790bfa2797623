"""What the queue's tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection


@pytest.fixture
def nobody_clears() -> Iterator[None]:
    """Autovacuum leaves the jobs' table alone meanwhile: nothing is cleared, and no plan changes."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE jobs_job SET (autovacuum_enabled = off)")
    yield
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE jobs_job RESET (autovacuum_enabled)")
