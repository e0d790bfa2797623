"""
Reads that may be late go to a streaming standby if one is set (DATABASE_REPLICA_URL). They go to the primary if the
standby is away, cancels the read, or lags.

While such a read runs, this thread's default connection is the standby's: models, statements of `sql/`, transactions
and the settings of row security then use it unchanged. Only screens and metrics of the web process make such reads.
"""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, Error, connections

from .local_settings import local_settings

logger = logging.getLogger(__name__)

REPLICA = "replica"  # a key of Django's DATABASES, which is missing if no replica is set
AWAY_SECONDS = 5.0  # between attempts to reach a replica that does not answer, because requests wait for each attempt

# Needs no superuser. The primary's position and time are read first, and then compared with the standby's.
OF_PRIMARY = "SELECT pg_current_wal_lsn()::text, clock_timestamp(), (SELECT value FROM jobs_epoch)"
OF_REPLICA = """
SELECT pg_is_in_recovery(), pg_last_wal_replay_lsn() >= %s::pg_lsn,
       extract(epoch FROM %s - pg_last_xact_replay_timestamp())::float8, (SELECT value FROM jobs_epoch)
"""

Given = ParamSpec("Given")
Value = TypeVar("Value")


class RowReader(Protocol):
    """Runs a read on the database that it chooses: `off_primary` or `on_primary`."""

    def __call__(self, read: Callable[[], Value]) -> Value: ...


class ReplicaStanding(NamedTuple):
    """
    Attributes:
        lag_seconds: How far the replica lags at most; None: unknown.
        trouble: Why the primary is read instead; empty: the replica is read.
        detail: The driver's words, for operators of the servers.
    """

    lag_seconds: float | None
    trouble: str = ""
    detail: str = ""


class _Away:
    standing = ReplicaStanding(None)
    until = float("-inf")


_away = _Away()
_displaced = threading.local()


def replica_standing() -> ReplicaStanding | None:
    """Return the state of the replica that this thread is connected to, by two short statements; None: no replica."""
    if REPLICA not in connections.settings:
        return None
    if time.monotonic() < _away.until:
        return _away.standing
    standing = _look()
    if standing.lag_seconds is None:
        _away.standing, _away.until = standing, time.monotonic() + AWAY_SECONDS
    return standing


def forget_trouble() -> None:
    """Have the next read try the replica again."""
    _away.until = float("-inf")


def off_primary(read: Callable[[], Value]) -> Value:
    """
    Return what `read` returns, from the replica if it is fit to be read, else from the primary.

    Args:
        read: Must write nothing and return nothing lazy. If the replica fails, it runs again on the primary.
    """
    primary: Any = connections[DEFAULT_DB_ALIAS]
    # The replica would lack the writes of an open transaction of the primary.
    if primary.alias == REPLICA or primary.in_atomic_block:
        return read()
    standing = replica_standing()
    if standing is None or standing.trouble:
        return read()
    _displaced.primary = primary
    try:
        with _default_is(connections[REPLICA]):
            return read()
    except Error as error:
        logger.warning("the replica failed a read, which the primary repeats: %s", _words_of(error))
    finally:
        _displaced.primary = None
    return read()


def on_primary(read: Callable[[], Value]) -> Value:
    """Read from the primary, in place of `off_primary`, if the reader must see the latest writes."""
    return read()


def from_primary(read: Callable[Given, Value]) -> Callable[Given, Value]:
    """
    Decorate a read whose result the process keeps and decides by. Such a read uses the primary, even within
    `off_primary`.
    """

    @functools.wraps(read)
    def reading(*args: Given.args, **kwargs: Given.kwargs) -> Value:
        primary = getattr(_displaced, "primary", None)
        if primary is None:
            return read(*args, **kwargs)
        with _default_is(primary):
            return read(*args, **kwargs)

    return reading


@contextmanager
def _default_is(one: Any) -> Iterator[None]:
    before = connections[DEFAULT_DB_ALIAS]
    connections[DEFAULT_DB_ALIAS] = one
    try:
        yield
    finally:
        connections[DEFAULT_DB_ALIAS] = before


def _look() -> ReplicaStanding:
    trouble = "the primary does not tell its position"
    try:
        with local_settings(None):
            position, now, epoch = _row(DEFAULT_DB_ALIAS, OF_PRIMARY)
            trouble = "it does not answer"
            is_standby, is_level, behind, its_epoch = _row(REPLICA, OF_REPLICA, position, now)
    except Error as error:
        return ReplicaStanding(None, trouble, _words_of(error))
    if not is_standby:
        return ReplicaStanding(None, "it is no standby")
    if its_epoch != epoch:
        return ReplicaStanding(None, "it follows another database, or one that was restored since")
    if not is_level and behind is None:
        return ReplicaStanding(None, "nobody knows how far it lags: it has replayed nothing yet")
    # The replica has every commit up to the last one that it replayed, so it lags at most by that commit's age.
    lag = 0.0 if is_level else max(0.0, behind)
    most = settings.QUEUEOPS.replica_max_lag_seconds
    late = f"it lags {lag:.1f} s, more than QUEUEOPS_REPLICA_MAX_LAG_SECONDS ({most:g})"
    return ReplicaStanding(lag, late if lag > most else "")


def _row(alias: str, statement: str, *parameters: Any) -> tuple[Any, ...]:
    with connections[alias].cursor() as cursor:
        cursor.execute(statement, parameters)
        row: tuple[Any, ...] = cursor.fetchone()
    return row


def _words_of(error: Error) -> str:
    # Drop the broken connection: a long read, such as an export, would otherwise never reach a standby that is back.
    connections[REPLICA].close_if_unusable_or_obsolete()
    return " ".join(str(error).split())
