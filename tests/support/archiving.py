"""Old work, and what an archive has to keep of it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.utils import timezone

from jobs.models import Batch, DeadLetter, Job, JobEvent, Tag
from jobs.services.operate.dead_letters import discard_dead_letters
from jobs.services.upkeep.partitions import EVENTS, Partitioned
from jobs.states import JobState
from tests.factories import make_batch, make_dead_letter, make_jobs

DAYS = 40
THEN = timedelta(days=DAYS)
PAYLOAD = json.dumps({"figure": 1.10, "large": 12345678901234567890, "text": "zoë\u2028\\N\t", "password": "hush"})


def parts(kept: Partitioned) -> set[str]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = %s::regclass", [kept.table])
        return {name for (name,) in cursor.fetchall()}


def old_part(kept: Partitioned, *, days: int) -> str:
    name, first, last = kept.part_of(datetime.now(UTC).date() - timedelta(days=days))
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {name} PARTITION OF {kept.table} FOR VALUES FROM ('{first}') TO ('{last}')")
    return name


def age() -> None:
    """Everything that is there came and ended long ago."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")
        for table, column in (("job", "created_at"), ("job", "finished_at"), ("jobevent", "created_at")):
            statement = f"UPDATE jobs_{table} SET {column} = {column} - %s::interval"  # noqa: S608
            cursor.execute(statement, [f"{DAYS} days"])
        cursor.execute("SET LOCAL session_replication_role = origin")


def said(*words: str) -> str:
    out = StringIO()
    call_command(*words, stdout=out)
    return out.getvalue()


def day() -> str:
    return str((timezone.now() - THEN).astimezone(UTC).date())


def state() -> list[Any]:
    """All of the tables but the transactions that wrote the events."""
    kept = [list(model._default_manager.order_by("pk").values()) for model in (Job, Batch, DeadLetter)]
    tags = list(Tag.objects.order_by("owner_id", "name").values())
    events = [{**row, "xid": None} for row in JobEvent.objects.order_by("pk").values()]
    return [*kept, tags, events]


@pytest.fixture
def old_work() -> list[Job]:
    """Ended jobs of two projects with a discarded dead letter, a batch and tags; in two jobs' parts."""
    old_part(EVENTS, days=DAYS)
    batch = make_batch(name="monthly", total=3)
    made = make_jobs(3, state=JobState.COMPLETED, payload=PAYLOAD, batch=batch, tags=["blue", "red"])
    made += make_jobs(2, state=JobState.CANCELLED, project="globex", idempotency_key=None)
    letter = make_dead_letter()
    discard_dead_letters([letter.pk], actor="user:1", reason="late")
    age()
    return [*made, letter.job]
