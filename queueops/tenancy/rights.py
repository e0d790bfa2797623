"""
Rights of the API's role on tables that 1.0.0 does not know, nor do the commits up to e6e967ab.

These take such a table for a breach as soon as the API may use it: web does not start, and an executor that connects
takes no jobs. Therefore no migration gives the rights. Until the first process of this version runs, processes of the
version before go on beside the new tables, and start again where they have to.
"""

from __future__ import annotations

from collections.abc import Mapping

from django.db import connection, transaction

from .row_security import columns
from .scope import API_ROLE

# Later tables need none of this: from 1.1.0 on a confined table is no breach, and its migration gives the rights.
RIGHTS: Mapping[str, str] = {
    "jobs_refusedcalls": "SELECT",
    # Without `reason`: the server's words about a job are for its project alone.
    "tenancy_credentialsetting": columns("SELECT", ["id", "credential_id", "model", "takes"]),
    **dict.fromkeys(
        ("door_modelroute", "door_doorfile", "door_doorfilepart", "door_doorcall", "door_doorbatch"),
        "SELECT, INSERT, UPDATE, DELETE",
    ),
}

LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('queueops rights', 0))"
# Null where the role is still to be made, too.
GIVEN = """
SELECT relname, has_any_column_privilege(to_regrole(%s)::oid, oid, 'SELECT') FROM pg_class
 WHERE relnamespace = current_schema()::regnamespace AND relname = ANY(%s)
"""


def give_rights() -> bool:
    """
    Give what is missing. Several processes at once wait for each other.

    Returns:
        Whether all is given now: not before the tables and the role are there.
    """
    if all(_given().values()):
        return True
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(LOCK)  # or two would change one row of the catalogue, and the second would fail
        given = _given()
        for table in [name for name, is_given in given.items() if is_given is False]:
            cursor.execute(f"GRANT {RIGHTS[table]} ON TABLE {table} TO {API_ROLE}")
    return None not in given.values()


def _given() -> dict[str, bool | None]:
    with connection.cursor() as cursor:
        cursor.execute(GIVEN, [API_ROLE, [*RIGHTS]])
        return {**dict.fromkeys(RIGHTS), **dict(cursor.fetchall())}
