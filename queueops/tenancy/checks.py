"""Whether the database keeps projects apart: asked by `check --database default`, `doctor`, and before a start."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from django.apps import apps
from django.core import checks
from django.db import connection
from django.db.models import ForeignKey, Model

from queueops.core.database import UnsuitableDatabase
from queueops.core.upgrade import is_migrated

from .database_roles import TAKEN_ON, explained, missing_roles
from .row_security import SERVICE_ROLE
from .scope import ANONYMOUS_ROLE, API_ROLE

# Tenants' tables without a column `project_id`, and without a foreign key to a table that has this column.
PROJECTS_OTHERWISE = {
    "jobs_bulkoperation",
    "jobs_maintenancewindow",
    "jobs_pauseswitch",
    "ratelimits_costestimate",
    "tenancy_credential",
    "tenancy_credentialpool",
    "tenancy_credentialpoolmember",
    "tenancy_credentialrefusal",
    "tenancy_credentialsetting",
    "tenancy_project",
}

# Tables that the API may read or write although everyone's rows are in them.
SHARED = {
    "django_q_ormq",
    "jobs_agingrule",
    "jobs_batchpace",
    "jobs_pool",
    "jobs_retrypolicy",
    "ratelimits_counter",
    "ratelimits_limit",
    "ratelimits_limitoverride",
    "ratelimits_price",
    "ratelimits_resumeramp",
}

# Tables whose rows everybody may read if the project has `anonymous_read`, and the tables of rules that this needs.
SHOWN = {
    "jobs_agingrule",
    "jobs_batch",
    "jobs_job",
    "jobs_jobcount",
    "jobs_jobevent",
    "jobs_servicebreaker",
    "jobs_tag",
    "tenancy_project",
}

# A view is confined by its own condition, a table by row-level security.
CONFINED = """(relkind = 'v' AND pg_get_viewdef(pg_class.oid) LIKE '%%project_id%% = ( SELECT %%''queueops.project''%%'
    OR (relrowsecurity AND relforcerowsecurity
        AND ARRAY['api', 'service']::name[] = ARRAY(
            SELECT polname FROM pg_policy WHERE polrelid = pg_class.oid AND polname <> 'anonymous' ORDER BY polname)
        AND NOT EXISTS (SELECT FROM pg_policy
                         WHERE polrelid = pg_class.oid
                           AND (polroles IS DISTINCT FROM ARRAY[to_regrole('queueops_' || polname)::oid]
                                OR polname = 'anonymous' AND polcmd <> 'r'))))"""
OPEN_TABLES = f"""
SELECT relname FROM pg_class
 WHERE relnamespace = current_schema()::regnamespace AND relname = ANY(%s) AND NOT {CONFINED}
 ORDER BY relname
"""  # noqa: S608 - our own words

# A role has the power of every role that it may switch to or inherits from.
STRONGER_ROLES = """
SELECT rolname FROM pg_roles
 WHERE (pg_has_role(%s, oid, 'MEMBER') OR pg_has_role(%s, oid, 'MEMBER'))
   AND (rolsuper OR rolbypassrls OR rolname IN (current_user, %s)
        OR oid IN (SELECT relowner FROM pg_class
                    WHERE relnamespace = current_schema()::regnamespace AND relname = ANY(%s)))
 ORDER BY rolname
"""

# A later version's table is no fault if it is confined like ours: the installation may have gone back to this version.
REACHED_TABLES = f"""
SELECT relname FROM pg_class
 WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'p', 'v', 'm', 'f') AND relname <> ALL(%s)
   AND NOT (relname <> ALL(%s) AND {CONFINED})
   AND (has_table_privilege(%s, oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE, REFERENCES, TRIGGER')
        OR has_any_column_privilege(%s, oid, 'SELECT, INSERT, UPDATE, REFERENCES'))
 ORDER BY relname
"""  # noqa: S608 - our own words


def tenant_tables() -> list[str]:
    """Return the tables with rows of projects: their rows name the project, or belong to a row that does."""
    described = [model._meta for model in apps.get_models(include_auto_created=True)]  # noqa: SLF001 - documented
    found = {one.model for one in described if any(field.column == "project_id" for field in one.concrete_fields)}
    while children := {one.model for one in described if one.model not in found and _belongs_to(one, found)}:
        found |= children
    return sorted({one.db_table for one in described if one.model in found} | PROJECTS_OTHERWISE)


def _belongs_to(described: Any, parents: Collection[type[Model]]) -> bool:
    return any(isinstance(field, ForeignKey) and field.related_model in parents for field in described.concrete_fields)


def unsafe() -> list[str]:
    """Return the faults, each with what to do; missing roles hide all other faults."""
    if missing := missing_roles():
        return [explained(missing)]
    tables = tenant_tables()
    found = []
    if stronger := _names(STRONGER_ROLES, *TAKEN_ON, SERVICE_ROLE, tables):
        found.append(
            f"The roles {API_ROLE} and {ANONYMOUS_ROLE} have the rights of {stronger}, which sees every project. Take "
            "them away: ALTER ROLE … NOSUPERUSER NOBYPASSRLS, REVOKE … FROM …, ALTER TABLE … OWNER TO …"
        )
    if open_tables := _names(OPEN_TABLES, tables):
        found.append(
            f"Row-level security is off or changed on {open_tables}. Put back ENABLE, FORCE and the policies of the "
            "initial migrations."
        )
    known = [*tables, *(model._meta.db_table for model in apps.get_models(include_auto_created=True))]  # noqa: SLF001
    for role, business in ((API_ROLE, [*tables, *SHARED]), (ANONYMOUS_ROLE, [*SHOWN])):
        if reached := _names(REACHED_TABLES, business, known, role, role):
            found.append(
                f"The role {role} may use {reached}, which is not its business. Run REVOKE ALL ON … FROM {role}, "
                "PUBLIC, and look for ALTER DEFAULT PRIVILEGES."
            )
    return found


def ensure_projects_are_kept_apart() -> None:
    """
    Raises:
        UnsuitableDatabase
    """
    if found := unsafe():
        raise UnsuitableDatabase("\n".join(found))


@checks.register(checks.Tags.database)
def row_security_check(*, databases: Collection[str] | None = None, **_: Any) -> list[checks.CheckMessage]:
    """
    Report nothing while migrations are missing: `migrate` runs the checks first, and may be what repairs the faults.
    """
    if not databases or not is_migrated():
        return []
    return [checks.Error(text, id="tenancy.E001") for text in unsafe()]


def _names(statement: str, *parameters: Any) -> str:
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters)
        return ", ".join(name for (name,) in cursor.fetchall())
