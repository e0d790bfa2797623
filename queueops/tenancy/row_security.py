"""
Row-level security of the tenants' tables, for migrations: who may see and write which rows.

    queueops_service   Everything. The login role is a member: workers, the admin and the relay act as this role.
    queueops_api       A project's rows, as far as rights are granted. A transaction switches to it: scope.py.
    queueops_anonymous Reads some rows of a project that shows itself to everybody. A transaction switches to it.

FORCE makes the login role, which owns the tables, obey the policies, too. A superuser obeys no policy until it switches
to a role.
"""

from __future__ import annotations

from collections.abc import Sequence

from django.db.migrations import RunSQL

from .scope import ANONYMOUS_ROLE, API_ROLE, PROJECT_SETTING, USER_SETTING

SERVICE_ROLE = "queueops_service"

# In a subquery a setting is read once for a statement, not for each row. After a transaction that set it, it is empty,
# not null.
PROJECT = f"(SELECT nullif(current_setting('{PROJECT_SETTING}', true), ''))"
USER = f"(SELECT nullif(current_setting('{USER_SETTING}', true), '')::uuid)"

OF_PROJECT = f"project_id = {PROJECT}"
# EXISTS is true only for a project that shows itself to everybody: the anonymous role cannot see other projects' rows.
OF_SHOWN_PROJECT = f"{OF_PROJECT} AND EXISTS (SELECT FROM tenancy_project AS shown WHERE shown.id = {PROJECT})"
OF_USER = f"{OF_PROJECT} AND ({USER} IS NULL OR user_id = {USER})"


def protect(table: str, rows: str, *grants: str, check: str = "") -> RunSQL:
    """
    Confine the API to some rows of a table, and to the privileges that are granted.

    Args:
        rows: A condition in SQL: the rows that the API may see and change, as they are before and after a change.
        grants: Privileges such as `SELECT` or `UPDATE (name)`; without any the API may do nothing with the table.
        check: A condition for the rows that it may write, if it differs from `rows`.
    """
    protecting = [
        f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
        f"CREATE POLICY service ON {table} TO {SERVICE_ROLE} USING (true)",
        f"CREATE POLICY api ON {table} TO {API_ROLE} USING ({rows}) WITH CHECK ({check or rows})",
    ]
    exposing = [
        f"DROP POLICY api ON {table}",
        f"DROP POLICY service ON {table}",
        f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY, DISABLE ROW LEVEL SECURITY",
    ]
    granting, revoking = _granting(f"TABLE {table}", grants)
    return RunSQL([*protecting, *granting], [*revoking, *exposing])


def show_to_anonymous(table: str, rows: str) -> RunSQL:
    """Let anybody read these rows of a protected table."""
    granting, revoking = _granting(f"TABLE {table}", ["SELECT"], ANONYMOUS_ROLE)
    policy = f"CREATE POLICY anonymous ON {table} FOR SELECT TO {ANONYMOUS_ROLE} USING ({rows})"
    return RunSQL([policy, *granting], [*revoking, f"DROP POLICY anonymous ON {table}"])


def show_rows(view: str, table: str, rows: str, names: Sequence[str]) -> RunSQL:
    """
    Let the API read rows of a table through a view that it may not read in the table itself.

    The view reads with the rights of its owner, who sees every row: only its condition confines it. It has no
    `security_barrier`: with that, PostgreSQL would plan the view by itself, and one page would read all of its rows.

    Args:
        names: The columns' names.
    """
    making = f"CREATE VIEW {view} AS SELECT {', '.join(names)} FROM {table} WHERE {rows}"  # noqa: S608 - our own words
    granting, revoking = _granting(f"TABLE {view}", ["SELECT"])
    return RunSQL([making, *granting], [*revoking, f"DROP VIEW {view}"])


def grant(target: str, *privileges: str, role: str = API_ROLE) -> RunSQL:
    """
    Let a role use a table or sequence that belongs to no project.

    Args:
        target: `TABLE jobs_retrypolicy` or `SEQUENCE jobs_jobevent_id`.
    """
    granting, revoking = _granting(target, privileges, role)
    return RunSQL([*granting], [*revoking])


def _granting(target: str, privileges: Sequence[str], role: str = API_ROLE) -> tuple[list[str], list[str]]:
    if not privileges:
        return [], []
    listed = ", ".join(privileges)
    return [f"GRANT {listed} ON {target} TO {role}"], [f"REVOKE {listed} ON {target} FROM {role}"]


def columns(privilege: str, names: Sequence[str]) -> str:
    return f"{privilege} ({', '.join(names)})"
