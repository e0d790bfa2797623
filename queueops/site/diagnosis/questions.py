"""The questions of `manage.py doctor`: one function each, which returns the answer and what to do."""

from collections.abc import Callable, Iterator

import psycopg
from django.db import DatabaseError

from .access import (
    examine_credentials,
    examine_issuers,
    examine_payload_keys,
    examine_secret_key,
    examine_sign_in,
    examine_single_sign_on,
)
from .backups import examine_archive, examine_backups, examine_outcome_log
from .database import (
    examine_clock,
    examine_connections,
    examine_database,
    examine_durability,
    examine_listen,
    examine_migrations,
    examine_notifications,
    examine_permissions,
    examine_replica,
    examine_row_security,
    examine_transactions,
)
from .finding import DoctorFinding, DoctorVerdict, fail
from .surroundings import examine_metrics, examine_sandbox, examine_settings, examine_tracing
from .upkeep import (
    examine_audit_stream,
    examine_caps,
    examine_executors,
    examine_kinds,
    examine_results,
    examine_retention,
    examine_sums,
    examine_tasks,
    examine_zones,
)


def examine() -> Iterator[DoctorFinding]:
    """Answer every question; without a database, only the questions that need no database."""
    yield from examine_settings()
    database = examine_database()
    yield database
    yield from map(_ask, (examine_metrics, examine_sandbox, examine_tracing))
    if database.verdict is not DoctorVerdict.FAIL:
        yield from map(_ask, DATABASE_QUESTIONS)


def _ask(question: Callable[[], DoctorFinding]) -> DoctorFinding:
    """Return the answer, or what was raised instead: the answers to the other questions are needed all the more."""
    subject = question.__name__.removeprefix("examine_").replace("_", " ")
    try:
        return question()
    except (DatabaseError, psycopg.Error) as error:
        return fail(subject, str(error).strip(), "Look into the database's log.")
    except Exception as error:  # noqa: BLE001 - whatever it is
        told = f"{type(error).__name__}: {error}"
        return fail(subject, told, "The question itself failed: report it.")


DATABASE_QUESTIONS: tuple[Callable[[], DoctorFinding], ...] = (
    examine_durability,
    examine_clock,
    examine_listen,
    examine_notifications,
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
    examine_tasks,
    examine_kinds,
    examine_caps,
    examine_zones,
    examine_retention,
    examine_audit_stream,
    examine_backups,
    examine_archive,
    examine_outcome_log,
    examine_results,
    examine_sums,
)
