"""
The roles of row-level security. They are created if the login role may do so; otherwise an error gives an administrator
the SQL.

Roles belong to the whole server. Several databases share them, and may create them at the same moment.
"""

from __future__ import annotations

from typing import Any

import psycopg
from django.db import DatabaseError, connection, transaction
from psycopg import sql

from queueops.core.database import UnsuitableDatabase

from .row_security import SERVICE_ROLE
from .scope import ANONYMOUS_ROLE, API_ROLE

GRANTS_KNOW_THEIR_OPTIONS = 160_000  # PostgreSQL's version: GRANT has INHERIT and SET options
ATTEMPTS = 100
TAKEN_ON = (API_ROLE, ANONYMOUS_ROLE)

# Errors that mean that another database creates the role or membership at this moment.
SOMEBODY_ELSE_DOES = (
    psycopg.errors.DuplicateObject,
    psycopg.errors.UniqueViolation,
    psycopg.errors.InternalError_,  # tuple concurrently updated
)


class RolesMissing(UnsuitableDatabase):
    """Roles are missing in the database, and the login role may not make them. The message has the SQL that does."""

    code = "roles_missing"


def make_roles(**_: Any) -> None:
    """
    Create the missing roles, and the login role's missing memberships. Called before every migration.

    Raises:
        RolesMissing
    """
    for _attempt in range(ATTEMPTS):
        missing = missing_roles()
        if not missing:
            return
        for statement in missing:
            try:
                with transaction.atomic(), connection.cursor() as cursor:
                    cursor.execute(statement)
            except DatabaseError as error:
                if isinstance(error.__cause__, SOMEBODY_ELSE_DOES):
                    break
                if isinstance(error.__cause__, psycopg.errors.InsufficientPrivilege):
                    raise RolesMissing(explained(missing)) from None
                raise
    raise RolesMissing(explained(missing_roles()))


def explained(missing: list[str]) -> str:
    lines = "".join(f"\n  {statement};" for statement in missing)
    return f"Row-level security needs roles that {_login()} may not make. Have an administrator run:{lines}"


def missing_roles() -> list[str]:
    """
    Return the statements that create what is missing, for somebody who may create roles; empty: nothing is missing.
    """
    with connection.cursor() as cursor:
        version = connection.connection.info.server_version
        may_take_on = "SET" if version >= GRANTS_KNOW_THEIR_OPTIONS else "MEMBER"
        cursor.execute(
            "SELECT rolname, pg_has_role(oid, 'USAGE'), pg_has_role(oid, %s) FROM pg_roles WHERE rolname = ANY(%s)",
            [may_take_on, [SERVICE_ROLE, *TAKEN_ON]],
        )
        found = {name: (inherits, may_set) for name, inherits, may_set in cursor.fetchall()}
        cursor.execute("SELECT rolinherit FROM pg_roles WHERE rolname = current_user")
        inherits_by_itself = cursor.fetchone()[0]
    login = sql.Identifier(_login()).as_string(None)
    statements = [f"CREATE ROLE {role} NOLOGIN" for role in (SERVICE_ROLE, *TAKEN_ON) if role not in found]
    inherits, _ = found.get(SERVICE_ROLE, (False, False))
    knows_options = version >= GRANTS_KNOW_THEIR_OPTIONS
    if not inherits:
        statements.append(f"GRANT {SERVICE_ROLE} TO {login}" + (" WITH INHERIT TRUE" if knows_options else ""))
        if not (inherits_by_itself or knows_options):
            statements.append(f"ALTER ROLE {login} INHERIT")
    lacking = [role for role in TAKEN_ON if not found.get(role, (False, False))[1]]
    return statements + [f"GRANT {role} TO {login}" + (" WITH SET TRUE" if knows_options else "") for role in lacking]


def _login() -> str:
    with connection.cursor() as cursor:
        cursor.execute("SELECT current_user")
        return str(cursor.fetchone()[0])
