"""Events as apps report them, and what their months hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from unittest import mock
from uuid import UUID, uuid4

import psycopg
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from ratelimits.models import UsageTracking
from ratelimits.usage.ingest import Ingested, Reported, ingest
from ratelimits.usage.ledger import check_ledger


class Month(NamedTuple):
    used: int
    reserved: int


def report(
    user: UUID,
    tokens: int = 1,
    *,
    event_id: UUID | None = None,
    reservation: UUID | None = None,
    at: datetime | None = None,
    ago: timedelta = timedelta(),
    service: str = "",
) -> Reported:
    moment = (at or timezone.now()) - ago
    return Reported(event_id or uuid4(), user, tokens, moment, reservation, service)


def send(*events: Reported, project: str = "acme", only_user: UUID | None = None) -> Ingested:
    return ingest(events, project_id=project, only_user=only_user)


def statuses(ingested: Ingested) -> list[str]:
    return [result.reason or result.status.value for result in ingested.results]


@contextmanager
def counted_statements() -> Iterator[list[str]]:
    """Every statement that is sent meanwhile, hot ones included."""
    sent: list[str] = []
    execute = psycopg.RawCursor.execute

    def noting(self: Any, query: Any, *args: Any, **kwargs: Any) -> Any:
        sent.append(bytes(query).decode())
        return execute(self, query, *args, **kwargs)

    with mock.patch.object(psycopg.RawCursor, "execute", noting), CaptureQueriesContext(connection) as queries:
        yield sent
    sent += [query["sql"] for query in queries]


def month_of(user: UUID, month: str | None = None, *, project: str = "acme") -> Month:
    """What a user's only month holds, or the named one; and that the ledger agrees."""
    assert check_ledger().differences == []
    rows = UsageTracking.objects.filter(project_id=project, user_id=user)
    row = rows.get() if month is None else rows.get(month_year=month)
    return Month(row.used, row.reserved)
