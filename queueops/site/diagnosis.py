"""What `manage.py doctor` looks at: one function a question, each with an answer and what to do."""

import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

import psycopg
from django.conf import settings
from django.contrib.auth.models import User
from django.core import checks
from django.db import DatabaseError, connection

from jobs.models import PauseSwitch
from jobs.services.upkeep.encrypt_payloads import keys_needed, still_plain
from jobs.services.upkeep.retention import find_overdue, is_archived
from queueops.access.services import guard
from queueops.audit import stream
from queueops.core import tracing
from queueops.core.database import MINIMUM_POSTGRES, UnsuitableDatabase, connect_directly
from queueops.core.errors import QueueOpsError
from queueops.core.pooler import POOLED, are_sessions_shared
from queueops.core.postgres.conditions import standing_condition, try_to_write
from queueops.core.postgres.horizon import DeadRows, most_dead_rows, oldest_transaction
from queueops.core.postgres.replica import replica_standing
from queueops.core.sealing import payload_keys
from queueops.core.upgrade import missing_migrations
from queueops.tenancy.callers.issuer_keys import fetch_keys
from queueops.tenancy.checks import unsafe
from queueops.tenancy.credentials import CredentialKeysMissing, unreadable_credentials
from queueops.tenancy.models import Issuer, Project
from queueops.tenancy.secret_key import ensure_own_secret_key

MAX_CLOCK_SKEW_SECONDS = 1.0
LISTEN_WAIT_SECONDS = 2.0
LATE_SUMS_SECONDS = 60.0
LATE_STREAM_SECONDS = 300.0  # a minute between two runs, and a transaction that lasts
SET_PAYLOAD_KEYS = "Set QUEUEOPS_PAYLOAD_KEYS on every host, or set the projects not to be encrypted."
CONNECTIONS_PER_WORKER = 3  # the executor's, its listener, and django-q2's; with spans another


class DoctorVerdict(StrEnum):
    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """
    Attributes:
        advice: What to do; empty when nothing is to be done.
    """

    subject: str
    verdict: DoctorVerdict
    observation: str
    advice: str = ""


def examine() -> Iterator[DoctorFinding]:
    """Answer every question; without a database only those that need none."""
    yield from examine_settings()
    database = examine_database()
    yield database
    yield examine_metrics()
    yield examine_sandbox()
    yield examine_tracing()
    if database.verdict is DoctorVerdict.FAIL:
        return
    for question in DATABASE_QUESTIONS:
        try:
            yield question()
        except (DatabaseError, psycopg.Error) as error:
            subject = question.__name__.removeprefix("examine_").replace("_", " ")
            yield DoctorFinding(subject, DoctorVerdict.FAIL, str(error).strip(), "Look into the database's log.")


def examine_settings() -> Iterator[DoctorFinding]:
    problems = checks.run_checks(include_deployment_checks=not settings.DEBUG)
    for problem in problems:
        verdict = DoctorVerdict.FAIL if problem.level >= checks.ERROR else DoctorVerdict.WARN
        yield DoctorFinding("settings", verdict, f"{problem.id}: {problem.msg}", problem.hint or "")
    if not problems:
        mode = "development" if settings.DEBUG else "production"
        yield DoctorFinding("settings", DoctorVerdict.OK, f"valid, {mode} mode")


def examine_database() -> DoctorFinding:
    try:
        connection.ensure_connection()
    except Exception as error:  # noqa: BLE001 (whatever is wrong is the finding)
        reason = " ".join(str(error).split())
        return DoctorFinding("database", DoctorVerdict.FAIL, reason, "Start PostgreSQL or correct DATABASE_URL.")
    version = connection.connection.info.server_version
    shown = f"PostgreSQL {version // 10_000}.{version % 10_000}"
    if version < MINIMUM_POSTGRES * 10_000:
        return DoctorFinding(
            "database", DoctorVerdict.FAIL, shown, f"Upgrade to PostgreSQL {MINIMUM_POSTGRES} or newer."
        )
    if condition := standing_condition() or try_to_write():
        return DoctorFinding("database", DoctorVerdict.FAIL, f"{shown}; {condition.reason}", condition.advice)
    return DoctorFinding("database", DoctorVerdict.OK, shown)


def examine_durability() -> DoctorFinding:
    lax = [name for name in ("fsync", "synchronous_commit", "full_page_writes") if _scalar(f"SHOW {name}") == "off"]
    if lax:
        names = ", ".join(lax)
        return DoctorFinding(
            "durability",
            DoctorVerdict.WARN,
            f"{names} off",
            f"Turn {names} on, or a crash loses acknowledged work.",
        )
    return DoctorFinding("durability", DoctorVerdict.OK, "fsync, synchronous_commit and full_page_writes on")


def examine_clock() -> DoctorFinding:
    before = datetime.now(UTC)
    theirs = _scalar("SELECT clock_timestamp()")
    after = datetime.now(UTC)
    assert isinstance(theirs, datetime)  # noqa: S101 (narrows the type)
    skew = (theirs - (before + (after - before) / 2)).total_seconds()
    shown = f"{skew:+.3f} s between this machine and the database"
    if abs(skew) > MAX_CLOCK_SKEW_SECONDS:
        return DoctorFinding(
            "clock",
            DoctorVerdict.WARN,
            shown,
            "Synchronise the clocks (NTP). Leases and limits use the database's clock and are right; "
            "logs and signed webhooks use this one.",
        )
    return DoctorFinding("clock", DoctorVerdict.OK, shown)


def examine_listen() -> DoctorFinding:
    if not settings.QUEUEOPS.listen:
        return DoctorFinding("listen", DoctorVerdict.OK, "off; workers poll every "
                       f"{settings.QUEUEOPS.poll_seconds:g} s")  # fmt: skip
    if are_sessions_shared():
        return DoctorFinding("listen", DoctorVerdict.FAIL, "on, and a pooler shares the server's sessions", POOLED)
    with connect_directly() as listener:
        listener.execute("LISTEN queueops_doctor")
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_notify('queueops_doctor', '')")
        began = time.monotonic()
        for _ in listener.notifies(timeout=LISTEN_WAIT_SECONDS, stop_after=1):
            return DoctorFinding("listen", DoctorVerdict.OK, f"heard after {(time.monotonic() - began) * 1000:.1f} ms")
    return DoctorFinding(
        "listen",
        DoctorVerdict.WARN,
        f"nothing heard in {LISTEN_WAIT_SECONDS:g} s",
        "Set QUEUEOPS_LISTEN=off: polling is enough.",
    )


def examine_connections() -> DoctorFinding:
    most = int(str(_scalar("SHOW max_connections"))) - int(str(_scalar("SHOW superuser_reserved_connections")))
    used = int(str(_scalar("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'")))
    config = settings.QUEUEOPS
    needed = config.pool_size + config.workers * CONNECTIONS_PER_WORKER
    shown = f"{used} of {most} in use; one web process and one worker master take up to {needed}"
    if most - used < needed:
        return DoctorFinding(
            "connections",
            DoctorVerdict.WARN,
            shown,
            "Raise max_connections, lower QUEUEOPS_POOL_SIZE or QUEUEOPS_WORKERS, or put PgBouncer in front.",
        )
    return DoctorFinding("connections", DoctorVerdict.OK, shown)


def examine_replica() -> DoctorFinding:
    standing = replica_standing()
    if standing is None:
        return DoctorFinding("replica", DoctorVerdict.OK, "none is set; everything is read from the primary")
    if standing.trouble:
        return DoctorFinding(
            "replica",
            DoctorVerdict.WARN,
            f"{standing.trouble}; everything is read from the primary",
            f"{standing.detail} See docs/how-to/production.md#reads-off-the-primary.".strip(),
        )
    return DoctorFinding("replica", DoctorVerdict.OK, f"lists, exports and charts; {standing.lag_seconds:.1f} s behind")


def examine_permissions() -> DoctorFinding:
    schema, may_create, may_have_temporary = _row(
        "SELECT current_schema(), coalesce(has_schema_privilege(current_schema(), 'CREATE'), false),"
        " has_database_privilege(current_database(), 'TEMPORARY')"
    )
    user = _scalar("SELECT current_user")
    if not (may_create and may_have_temporary):
        database = _scalar("SELECT current_database()")
        return DoctorFinding(
            "permissions",
            DoctorVerdict.FAIL,
            f"{user} may not create tables in schema {schema}, or temporary ones",
            f'GRANT CREATE ON SCHEMA "{schema or "public"}" TO "{user}"; '
            f'GRANT TEMPORARY ON DATABASE "{database}" TO "{user}";',
        )
    return DoctorFinding("permissions", DoctorVerdict.OK, f"{user} may create tables, partitions and temporary tables")


def examine_migrations() -> DoctorFinding:
    try:
        missing = missing_migrations()
    except UnsuitableDatabase as error:
        return DoctorFinding("migrations", DoctorVerdict.FAIL, error.message, "See docs/how-to/upgrade.md.")
    if missing:
        return DoctorFinding("migrations", DoctorVerdict.FAIL, f"{len(missing)} not applied", "Run manage.py migrate.")
    return DoctorFinding("migrations", DoctorVerdict.OK, "all applied")


def examine_row_security() -> DoctorFinding:
    if found := unsafe():
        return DoctorFinding(
            "row security", DoctorVerdict.FAIL, "the database does not keep projects apart", "\n".join(found)
        )
    return DoctorFinding("row security", DoctorVerdict.OK, "the API is shown the rows of one project at a time")


def examine_credentials() -> DoctorFinding:
    if _scalar("SELECT to_regclass('tenancy_credential')") is None:
        return DoctorFinding("credentials", DoctorVerdict.WARN, "no table yet", "Run manage.py migrate.")
    try:
        unreadable = unreadable_credentials()
    except CredentialKeysMissing as error:
        return DoctorFinding("credentials", DoctorVerdict.FAIL, "stored, but there is no key", error.message)
    if unreadable:
        return DoctorFinding(
            "credentials",
            DoctorVerdict.FAIL,
            f"no key opens {', '.join(unreadable)}",
            "Put back the key in QUEUEOPS_CREDENTIAL_KEYS they were encrypted with, or enter their secrets again."
            " Switch off webhooks and alert routes, and add others.",
        )
    return DoctorFinding("credentials", DoctorVerdict.OK, "every one can be opened")


def examine_payload_keys() -> DoctorFinding:
    """Looks through the rows of encrypted projects for one that a key is missing for, and for one that is plain."""
    name = "payload keys"
    if _scalar("SELECT to_regclass('jobs_pauseswitch')") is None:
        return DoctorFinding(name, DoctorVerdict.WARN, "no table yet", "Run manage.py migrate.")
    projects = list(Project.objects.filter(encrypted=True).values_list("pk", flat=True))
    keys = list(payload_keys())
    waits = PauseSwitch.objects.filter(scope=PauseSwitch.Scope.SEALED).values_list("key", flat=True)
    needed = dict.fromkeys((key for key in waits if key not in keys), "jobs that wait for it")
    needed |= keys_needed(projects, keys)
    if needed:
        told = ", ".join(f"{key} ({where})" for key, where in sorted(needed.items()))
        return DoctorFinding(
            name,
            DoctorVerdict.FAIL,
            f"rows need keys that are not set here: {told}",
            "Put them back into QUEUEOPS_PAYLOAD_KEYS, after the newest, on every host. Jobs that need them wait.",
        )
    if projects and not keys:
        return DoctorFinding(name, DoctorVerdict.FAIL, "projects are encrypted, but there is no key", SET_PAYLOAD_KEYS)
    if behind := still_plain(projects):
        return DoctorFinding(
            name,
            DoctorVerdict.WARN,
            f"not all that is stored is encrypted: {', '.join(behind)}",
            "Run manage.py encrypt_payloads.",
        )
    return DoctorFinding(name, DoctorVerdict.OK, f"all there for {len(projects)} encrypted projects")


def examine_secret_key() -> DoctorFinding:
    try:
        ensure_own_secret_key()
    except UnsuitableDatabase as error:
        return DoctorFinding("secret key", DoctorVerdict.FAIL, "another than the database's", error.message)
    return DoctorFinding("secret key", DoctorVerdict.OK, "the database's")


def examine_issuers() -> DoctorFinding:
    """Asks each key server now, as the next token with a new key would."""
    if _scalar("SELECT to_regclass('tenancy_issuer')") is None:
        return DoctorFinding("issuers", DoctorVerdict.WARN, "no table yet", "Run manage.py migrate.")
    issuers = list(Issuer.objects.filter(enabled=True).order_by("pk"))
    failed = []
    for issuer in issuers:
        if issuer.jwks_url:
            try:
                fetch_keys(issuer.pk, issuer.jwks_url)
            except QueueOpsError as error:
                failed.append(f"{issuer}: {error.message}")
    if failed:
        advice = "Its users are refused once the keys in use are a day old, at once if there are none. Check jwks_url."
        return DoctorFinding("issuers", DoctorVerdict.WARN, "; ".join(failed), advice)
    if not issuers:
        return DoctorFinding("issuers", DoctorVerdict.OK, "none; no end user can come with a token")
    return DoctorFinding("issuers", DoctorVerdict.OK, f"{len(issuers)}; every key server answers")


def examine_sign_in() -> DoctorFinding:
    if _scalar("SELECT to_regclass('access_authenticator')") is None:
        return DoctorFinding("sign-in", DoctorVerdict.WARN, "no tables yet", "Run manage.py migrate.")
    locked = guard.locked_names()
    bare = list(
        User.objects.filter(is_superuser=True, is_active=True, authenticator=None, passkeys=None).values_list(
            "username", flat=True
        )
    )
    required = settings.QUEUEOPS.second_factor == "required"
    if not settings.DEBUG and bare and not required:
        return DoctorFinding(
            "sign-in",
            DoctorVerdict.WARN,
            f"superusers without a second factor: {', '.join(sorted(bare))}",
            "Set QUEUEOPS_SECOND_FACTOR=required, or have them set one up: docs/how-to/secure-the-admin.md.",
        )
    if locked:
        advice = "manage.py unlock_sign_in opens it, if it is not somebody who guesses."
        return DoctorFinding("sign-in", DoctorVerdict.WARN, f"locked: {', '.join(locked)}", advice)
    return DoctorFinding(
        "sign-in", DoctorVerdict.OK, f"nobody is locked; second factor {settings.QUEUEOPS.second_factor}"
    )


def examine_single_sign_on() -> DoctorFinding:
    """Asks the provider now, as the next who signs in would."""
    if not settings.QUEUEOPS.oidc_issuer:
        return DoctorFinding("single sign-on", DoctorVerdict.OK, "none is set; people sign in with passwords")
    from queueops.access.services import provided, provider

    try:
        document = provider.discovered()
    except QueueOpsError as error:
        advice = f"Compare QUEUEOPS_OIDC_ISSUER with {settings.QUEUEOPS.oidc_issuer.rstrip('/')}{provider.DISCOVERY}"
        return DoctorFinding("single sign-on", DoctorVerdict.FAIL, error.message, advice)
    if "S256" not in document.get("code_challenge_methods_supported", ["S256"]):
        return DoctorFinding(
            "single sign-on", DoctorVerdict.FAIL, "the provider knows no PKCE with S256", "Ask whoever runs it."
        )
    if unknown := provided.unknown_roles():
        advice = "Correct it, or make that group in the admin: who has only that role is not let in."
        observed = f"QUEUEOPS_OIDC_ROLES names {', '.join(unknown)}"
        return DoctorFinding("single sign-on", DoctorVerdict.WARN, observed, advice)
    return DoctorFinding("single sign-on", DoctorVerdict.OK, f"{settings.QUEUEOPS.oidc_issuer} answers")


def examine_executors() -> DoctorFinding:
    if _scalar("SELECT to_regclass('jobs_executor')") is None:
        return DoctorFinding("executors", DoctorVerdict.WARN, "no tables yet", "Run manage.py migrate.")
    alive = _scalar(
        "SELECT count(*) FROM jobs_executor WHERE heartbeat_at > now() - make_interval(secs => %s)",
        settings.QUEUEOPS.lease_seconds,
    )
    if not alive:
        return DoctorFinding(
            "executors", DoctorVerdict.WARN, "none alive", "Start workers: manage.py up, or manage.py qcluster."
        )
    return DoctorFinding("executors", DoctorVerdict.OK, f"{alive} alive")


def examine_sums() -> DoctorFinding:
    """The sums behind charts and metrics."""
    if _scalar("SELECT to_regclass('jobs_flowcursor')") is None:
        return DoctorFinding("sums", DoctorVerdict.WARN, "no table yet", "Run manage.py migrate.")
    behind = _scalar(
        "SELECT extract(epoch FROM now() - min(marked_at))::float8 FROM jobs_flowcursor WHERE counted < mark"
    )
    if not isinstance(behind, float) or behind <= LATE_SUMS_SECONDS:
        return DoctorFinding("sums", DoctorVerdict.OK, "charts and metrics follow the job log")
    return DoctorFinding(
        "sums",
        DoctorVerdict.WARN,
        f"charts and metrics are {behind:.0f} s behind the job log",
        "Start workers; if they run, look for a transaction that stays open: "
        "SELECT pid, xact_start, query FROM pg_stat_activity WHERE backend_xid IS NOT NULL ORDER BY xact_start;",
    )


def examine_transactions() -> DoctorFinding:
    """What keeps deleted rows from being cleared away."""
    oldest, allowed = oldest_transaction(), settings.QUEUEOPS.alert_transaction_minutes * 60
    [worst] = most_dead_rows(1) or [DeadRows("", 0, 0)]
    piled = f"{worst.dead:,} dead rows in {worst.table}" if worst.table else "no tables yet"
    if oldest is None or oldest.seconds <= allowed:
        return DoctorFinding("transactions", DoctorVerdict.OK, f"none stays open; {piled}")
    ends = f"SELECT pg_terminate_backend({oldest.pid});" if oldest.pid else f"ROLLBACK PREPARED '{oldest.query}';"
    return DoctorFinding(
        "transactions",
        DoctorVerdict.WARN,
        f"one of {oldest.who} has been open for {oldest.seconds / 60:.0f} min ({oldest.state}); {piled}",
        f"End what holds it, or: {ends} See docs/runbooks/horizon.md.",
    )


def examine_retention() -> DoctorFinding:
    """What should have been deleted long since."""
    if _scalar("SELECT to_regclass('jobs_executor')") is None:
        return DoctorFinding("retention", DoctorVerdict.WARN, "no tables yet", "Run manage.py migrate.")
    overdue = find_overdue()
    if not overdue:
        return DoctorFinding("retention", DoctorVerdict.OK, "nothing is kept for longer than it should be")
    return DoctorFinding(
        "retention",
        DoctorVerdict.WARN,
        "; ".join(f"{late.name}: kept {late.days} days, the oldest is of {late.since:%Y-%m-%d}" for late in overdue),
        "Start workers, whose house-keeping deletes; if they run, look at the failed tasks in the admin."
        + " Jobs, batches and days of the log go with manage.py archive alone: run it." * is_archived(),
    )


def examine_audit_stream() -> DoctorFinding:
    target = settings.QUEUEOPS.audit_stream
    if not target:
        return DoctorFinding("audit stream", DoctorVerdict.OK, "none is set; the trail stays here")
    if _scalar("SELECT to_regclass('audit_auditstream')") is None:
        return DoctorFinding("audit stream", DoctorVerdict.WARN, "no table yet", "Run manage.py migrate.")
    lag = stream.lag_of(target)
    behind = f"{target}: {lag.entries:,} entries behind, the oldest for {lag.seconds / 60:.0f} min"
    if lag.fault or lag.seconds > LATE_STREAM_SECONDS:
        advice = "Nothing is lost: they are sent when it answers. See docs/how-to/stream-the-audit-trail.md."
        return DoctorFinding("audit stream", DoctorVerdict.WARN, f"{behind}; {lag.fault or 'not sent'}", advice)
    return DoctorFinding("audit stream", DoctorVerdict.OK, behind if lag.entries else f"{target} has everything")


def examine_metrics() -> DoctorFinding:
    if settings.QUEUEOPS.metrics_token:
        return DoctorFinding("metrics", DoctorVerdict.OK, "/metrics wants QUEUEOPS_METRICS_TOKEN")
    if settings.QUEUEOPS.debug:
        return DoctorFinding("metrics", DoctorVerdict.OK, "/metrics answers this machine only")
    return DoctorFinding(
        "metrics",
        DoctorVerdict.WARN,
        "/metrics answers this machine only",
        "Set QUEUEOPS_METRICS_TOKEN to let Prometheus read them from elsewhere, or through a proxy.",
    )


def examine_sandbox() -> DoctorFinding:
    port = settings.QUEUEOPS.sandbox_port
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return DoctorFinding("sandbox", DoctorVerdict.OK, f"not running on port {port}; only the demo needs it")
    return DoctorFinding("sandbox", DoctorVerdict.OK, f"answers on port {port}")


def examine_tracing() -> DoctorFinding:
    if not tracing.is_wanted():
        return DoctorFinding("tracing", DoctorVerdict.OK, "off; no OTEL_* variable names where spans go")
    if cause := tracing.trouble():
        return DoctorFinding("tracing", DoctorVerdict.WARN, "asked for, but no spans are sent", cause)
    return DoctorFinding("tracing", DoctorVerdict.OK, "spans go by OTLP to where the OTEL_* variables say")


DATABASE_QUESTIONS: tuple[Callable[[], DoctorFinding], ...] = (
    examine_durability,
    examine_clock,
    examine_listen,
    examine_connections,
    examine_replica,
    examine_transactions,
    examine_permissions,
    examine_migrations,
    examine_row_security,
    examine_secret_key,
    examine_credentials,
    examine_payload_keys,
    examine_issuers,
    examine_sign_in,
    examine_single_sign_on,
    examine_executors,
    examine_retention,
    examine_audit_stream,
    examine_sums,
)


def _row(statement: str, *parameters: float) -> tuple[object, ...]:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        row: tuple[object, ...] = cursor.fetchone()
    return row


def _scalar(statement: str, *parameters: float) -> object:
    return _row(statement, *parameters)[0]
