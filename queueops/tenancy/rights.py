"""
Rights of the API's role on tables that neither 1.0.0 nor the commits up to e6e967ab know.

To these versions such a table is a fault as soon as the API may use it: web does not start, and an executor that
connects takes no jobs. Therefore no migration grants the rights. Until the first process of this version runs,
processes of the version before can work, and start again, beside the new tables.
"""

from __future__ import annotations

from collections.abc import Mapping

from django.db import connection, transaction

from .row_security import columns
from .scope import API_ROLE

# Later tables are not listed: from 1.1.0 on a confined table is no fault, and its migration grants the rights.
RIGHTS: Mapping[str, str] = {
    "jobs_refusedcalls": "SELECT",
    # Without `reason`: it quotes the server's answer about a job, which is for the job's project alone.
    "tenancy_credentialsetting": columns("SELECT", ["id", "credential_id", "model", "takes"]),
    **dict.fromkeys(
        ("door_modelroute", "door_doorfile", "door_doorfilepart", "door_doorcall", "door_doorbatch"),
        "SELECT, INSERT, UPDATE, DELETE",
    ),
}

LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('queueops rights', 0))"
# The privilege is null if the role does not exist yet; a missing table gives None, too.
GIVEN = """
SELECT relname, has_any_column_privilege(to_regrole(%s)::oid, oid, 'SELECT') FROM pg_class
 WHERE relnamespace = current_schema()::regnamespace AND relname = ANY(%s)
"""


def give_rights() -> bool:
    """
    Grant the missing rights. Several processes at once wait for each other.

    Returns:
        Whether all rights are granted now; False: tables or the role do not exist yet.
    """
    if all(_given().values()):
        return True
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(LOCK)  # otherwise two processes would change one row of the catalogue, and the second would fail
        given = _given()
        for table in [name for name, is_given in given.items() if is_given is False]:
            cursor.execute(f"GRANT {RIGHTS[table]} ON TABLE {table} TO {API_ROLE}")
    return None not in given.values()


def _given() -> dict[str, bool | None]:
    with connection.cursor() as cursor:
        cursor.execute(GIVEN, [API_ROLE, [*RIGHTS]])
        return {**dict.fromkeys(RIGHTS), **dict(cursor.fetchall())}
