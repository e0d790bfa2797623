"""Limits, calls and counters for tests of the limiter's services, and a clock that tests move."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from django.db import connection

from queueops.core import sql
from ratelimits.limiter import counters
from ratelimits.limiter.decide import Binding, Decision
from ratelimits.limiter.view import headroom
from ratelimits.limits import catalogue
from ratelimits.models import Counter, Limit, LimitOverride
from ratelimits.subjects import Subject, counter_id
from tests.ratelimits.one_counter import gauge

SERVICE = "svc"
ADA = Subject(SERVICE, "write", "acme", "ada", "small")
BOB = ADA._replace(user="bob")
START = 1_800_000_000.0  # a whole minute and a whole hour


class Clock:
    """The database's clock as the limiter reads it: its own until `at` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at: float | None = None
        monkeypatch.setattr(counters, "run_sql", self._run)
        monkeypatch.setattr(headroom, "run_sql", self._run)

    def _run(self, app: str, name: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        rows = sql.run_sql(app, name, parameters)
        if self.at is None:
            return rows
        if name == "lock_counters":
            return [(*row[:-1], self.at) for row in rows]
        if name == "read_counters":
            return [(self.at, *row[1:]) for row in rows]
        return rows


def make_limit(name: str = "limit", **figures: Any) -> Limit:
    """One enabled limit of SERVICE; by default ten calls a minute for each project."""
    limit = Limit.objects.create(**{"name": name, "service": SERVICE, "capacity": 10, **figures})
    catalogue.forget()
    return limit


def change(limit: Limit, **figures: Any) -> None:
    Limit.objects.filter(pk=limit.pk).update(**figures)
    catalogue.forget()


def override(limit: Limit, key: str, **figures: Any) -> None:
    LimitOverride.objects.create(limit=limit, key=key, **figures)
    catalogue.forget()


def used(limit: Limit, key: str = "project:acme", *, now: float | None = None) -> float:
    """What a counter has used at `now`, by default by the database's clock; 0 without a counter."""
    counter = Counter.objects.filter(pk=counter_id(limit.pk, key)).first()
    if counter is None:
        return 0.0
    at = database_time() if now is None else now
    return round(gauge(catalogue.rule_of(limit).algorithm(key), counter.state, at).used, 3)


def database_time() -> float:
    with connection.cursor() as cursor:
        cursor.execute("SELECT extract(epoch FROM clock_timestamp())::float8")
        return float(cursor.fetchone()[0])


def versions() -> dict[str, tuple[str, str]]:
    """Each counter's row as it lies on disk, by id: its place and transaction, and all that it holds."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT id, ctid::text || ' ' || xmin::text, row_to_json(c)::text FROM ratelimits_counter AS c")
        return {name: (version, row) for name, version, row in cursor.fetchall()}


def kinds(decisions: Sequence[Decision]) -> str:
    """The kinds of decisions by their first letters, except `retry`: t."""
    return "".join({"proceed": "p", "defer": "d", "retry": "t", "reject": "r"}[one.kind] for one in decisions)


def binding(decision: Decision) -> Binding:
    assert decision.binding is not None
    return decision.binding


def retry_at(decision: Decision) -> float:
    assert decision.retry_at is not None
    return decision.retry_at
