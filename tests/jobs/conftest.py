"""What the queue's tests share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection

from tests.support.alert_mail import mail  # noqa: F401
from tests.support.archiving import old_work  # noqa: F401
from tests.support.executing import stage  # noqa: F401
from tests.support.plans import backlog  # noqa: F401


@pytest.fixture
def nobody_clears() -> Iterator[None]:
    """Autovacuum leaves the jobs' table alone meanwhile: nothing is cleared, and no plan changes."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE jobs_job SET (autovacuum_enabled = off)")
    yield
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE jobs_job RESET (autovacuum_enabled)")
