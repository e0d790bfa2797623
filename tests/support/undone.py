"""One world for many calls: what each of them writes is taken back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import connection, transaction

from ratelimits.limits import catalogue


@contextmanager
def undone() -> Iterator[None]:
    """Take back what the block writes; its transactions may be durable, as at the start of a test."""
    block = transaction.atomic()
    block._from_testcase = True  # type: ignore[attr-defined]  # as Django's own TestCase says it
    with block:
        yield
        transaction.set_rollback(True)
    catalogue.forget()


def rows_written() -> int:
    """How many rows the transaction has written so far, taken back or not, but for the sessions of who is signed in."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0) FROM pg_stat_xact_user_tables"
            " WHERE relname <> 'django_session'"
        )
        [written] = cursor.fetchone() or (0,)
    return int(written)
