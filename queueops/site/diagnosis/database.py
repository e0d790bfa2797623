"""The doctor's questions about the database: whether it answers, is new enough, and may be used."""

import time
from datetime import UTC, datetime

from django.conf import settings
from django.db import connection

from queueops.core.database import MIN_POSTGRES, UnsuitableDatabase, connect_directly
from queueops.core.pooler import POOLED, are_sessions_shared
from queueops.core.postgres.conditions import standing_condition, try_to_write
from queueops.core.postgres.horizon import (
    MAX_NOTIFICATIONS_SHARE,
    DeadRows,
    most_dead_rows,
    notification_queue_share,
    oldest_transaction,
)
from queueops.core.postgres.replica import replica_standing
from queueops.core.upgrade import missing_migrations
from queueops.tenancy.checks import unsafe

from .finding import DoctorFinding, fail, ok, row_of, scalar, warn

MAX_CLOCK_SKEW_SECONDS = 1.0
LISTEN_WAIT_SECONDS = 2.0
CONNECTIONS_PER_WORKER = 3  # the executor's, its listener's and django-q2's; tracing takes one more


def examine_database() -> DoctorFinding:
    try:
        connection.ensure_connection()
    except Exception as error:  # noqa: BLE001 (whatever is wrong is the finding)
        reason = " ".join(str(error).split())
        return fail("database", reason, "Start PostgreSQL or correct DATABASE_URL.")
    version = connection.connection.info.server_version
    shown = f"PostgreSQL {version // 10_000}.{version % 10_000}"
    if version < MIN_POSTGRES * 10_000:
        return fail("database", shown, f"Upgrade to PostgreSQL {MIN_POSTGRES} or newer.")
    if condition := standing_condition() or try_to_write():
        return fail("database", f"{shown}; {condition.reason}", condition.advice)
    return ok("database", shown)


def examine_durability() -> DoctorFinding:
    lax = [name for name in ("fsync", "synchronous_commit", "full_page_writes") if scalar(f"SHOW {name}") == "off"]
    if lax:
        names = ", ".join(lax)
        return warn("durability", f"{names} off", f"Turn {names} on, or a crash loses acknowledged work.")
    return ok("durability", "fsync, synchronous_commit and full_page_writes on")


def examine_clock() -> DoctorFinding:
    before = datetime.now(UTC)
    theirs = scalar("SELECT clock_timestamp()")
    after = datetime.now(UTC)
    assert isinstance(theirs, datetime)  # noqa: S101 (narrows the type)
    skew = (theirs - (before + (after - before) / 2)).total_seconds()
    shown = f"{skew:+.3f} s between this machine and the database"
    if abs(skew) > MAX_CLOCK_SKEW_SECONDS:
        return warn(
            "clock",
            shown,
            "Synchronise the clocks (NTP). Leases and limits use the database's clock and are right; "
            "logs and signed webhooks use this one.",
        )
    return ok("clock", shown)


def examine_listen() -> DoctorFinding:
    if not settings.QUEUEOPS.listen:
        return ok("listen", "off; workers poll every "
                       f"{settings.QUEUEOPS.poll_seconds:g} s")  # fmt: skip
    if are_sessions_shared():
        return fail("listen", "on, and a pooler shares the server's sessions", POOLED)
    with connect_directly() as listener:
        listener.execute("LISTEN queueops_doctor")
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_notify('queueops_doctor', '')")
        began = time.monotonic()
        for _ in listener.notifies(timeout=LISTEN_WAIT_SECONDS, stop_after=1):
            return ok("listen", f"heard after {(time.monotonic() - began) * 1000:.1f} ms")
    return warn("listen", f"nothing heard in {LISTEN_WAIT_SECONDS:g} s", "Set QUEUEOPS_LISTEN=off: polling is enough.")


def examine_notifications() -> DoctorFinding:
    """Look for a session that listens and reads nothing: for want of room, all that notify would fail."""
    share = notification_queue_share()
    shown = f"the queue of unread ones is {share:.0%} full"
    if share > MAX_NOTIFICATIONS_SHARE:
        return warn(
            "notifications",
            shown,
            'End the session that listens and is "idle in transaction"; see docs/runbooks/horizon.md.',
        )
    return ok("notifications", shown)


def examine_connections() -> DoctorFinding:
    most = int(str(scalar("SHOW max_connections"))) - int(str(scalar("SHOW superuser_reserved_connections")))
    used = int(str(scalar("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'")))
    config = settings.QUEUEOPS
    needed = config.pool_size + config.workers * CONNECTIONS_PER_WORKER
    shown = f"{used} of {most} in use; one web process and one worker master take up to {needed}"
    if most - used < needed:
        return warn(
            "connections",
            shown,
            "Raise max_connections, lower QUEUEOPS_POOL_SIZE or QUEUEOPS_WORKERS, or put PgBouncer in front.",
        )
    return ok("connections", shown)


def examine_replica() -> DoctorFinding:
    standing = replica_standing()
    if standing is None:
        return ok("replica", "none is set; everything is read from the primary")
    if standing.trouble:
        return warn(
            "replica",
            f"{standing.trouble}; everything is read from the primary",
            f"{standing.detail} See docs/how-to/production.md#reads-off-the-primary.".strip(),
        )
    return ok("replica", f"lists, exports and charts; {standing.lag_seconds:.1f} s behind")


def examine_permissions() -> DoctorFinding:
    schema, may_create, may_have_temporary = row_of(
        "SELECT current_schema(), coalesce(has_schema_privilege(current_schema(), 'CREATE'), false),"
        " has_database_privilege(current_database(), 'TEMPORARY')"
    )
    user = scalar("SELECT current_user")
    if not (may_create and may_have_temporary):
        database = scalar("SELECT current_database()")
        return fail(
            "permissions",
            f"{user} may not create tables in schema {schema}, or temporary ones",
            f'GRANT CREATE ON SCHEMA "{schema or "public"}" TO "{user}"; '
            f'GRANT TEMPORARY ON DATABASE "{database}" TO "{user}";',
        )
    return ok("permissions", f"{user} may create tables, partitions and temporary tables")


def examine_migrations() -> DoctorFinding:
    try:
        missing = missing_migrations()
    except UnsuitableDatabase as error:
        return fail("migrations", error.message, "See docs/how-to/upgrade.md.")
    if missing:
        return fail("migrations", f"{len(missing)} not applied", "Run manage.py migrate.")
    return ok("migrations", "all applied")


def examine_row_security() -> DoctorFinding:
    if found := unsafe():
        return fail("row security", "the database does not keep projects apart", "\n".join(found))
    return ok("row security", "the API is shown the rows of one project at a time")


def examine_transactions() -> DoctorFinding:
    """Look for transactions that keep deleted rows from being cleared away."""
    oldest, allowed = oldest_transaction(), settings.QUEUEOPS.alert_transaction_minutes * 60
    [worst] = most_dead_rows(1) or [DeadRows("", 0, 0)]
    piled = f"{worst.dead:,} dead rows in {worst.table}" if worst.table else "no tables yet"
    if oldest is None or oldest.seconds <= allowed:
        return ok("transactions", f"none stays open; {piled}")
    ends = f"SELECT pg_terminate_backend({oldest.pid});" if oldest.pid else f"ROLLBACK PREPARED '{oldest.query}';"
    return warn(
        "transactions",
        f"one of {oldest.who} has been open for {oldest.seconds / 60:.0f} min ({oldest.state}); {piled}",
        f"End what holds it, or: {ends} See docs/runbooks/horizon.md.",
    )
