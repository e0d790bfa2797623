"""Several `manage.py migrate` at once."""

from __future__ import annotations

import psycopg
import pytest

from queueops.site.management.commands.migrate import LOCK
from tests.support.processes import database_url, manage


@pytest.mark.proves("P10")
@pytest.mark.django_db(transaction=True)
def test_one_migrates_and_the_others_wait_for_it():
    with psycopg.connect(database_url()) as at_work, manage("migrate") as first, manage("migrate") as second:
        assert at_work.execute(LOCK).fetchone() == (True,)
        for waiting in (first, second):
            waiting.wait_for_output("Another migrate is at work; waiting for it.", seconds=60)
        at_work.rollback()
        for waiting in (first, second):
            assert waiting.process.wait(120) == 0
            assert "No migrations to apply" in waiting.output
