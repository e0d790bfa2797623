"""The conditions for moving a project to another installation."""

# ruff: noqa: S608 - put together from our own words

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

from jobs.features.encryption.encrypt_payloads import keys_used
from jobs.models import Epoch
from queueops.core.clock import with_clocks
from queueops.core.sealing import TOKEN, payload_keys
from queueops.tenancy.models import Project, ProjectMove

from .copying import Ciphers, Cursor, MoveError, has_secrets

NAMED = 5  # names in a message; the others are counted
MIGRATIONS = "SELECT app || ' ' || name FROM django_migrations ORDER BY 1"
TABLES = "SELECT to_regclass('jobs_epoch') IS NOT NULL AND to_regclass('django_migrations') IS NOT NULL"
ARCHIVED = "SELECT count(*) FROM jobs_restoredjob WHERE project_id = %(project)s"
POLICIES = (
    "SELECT DISTINCT retry_policy_id FROM jobs_job WHERE project_id = %(project)s AND retry_policy_id IS NOT NULL"
)
# The columns of a limit that say what its counters and overrides mean: they must be equal in both installations.
MEANING = """
concat_ws(' ', service, call_type, scope, model, per_model, unit, algorithm, window_seconds, reset_zone, project, kind)
"""
EVERY_LIMIT = f"SELECT name, {MEANING} FROM ratelimits_limit"
OF_KEY = "key = 'project:' || %(project)s OR starts_with(key, 'project:' || %(project)s || '/')"
KEYED = f"""
SELECT limit_id FROM ratelimits_limitoverride WHERE {OF_KEY}
 UNION ALL SELECT limit_id FROM ratelimits_counter WHERE {OF_KEY}
"""
# The project's own limits are left out: they are moved with it. Limits of other projects count none of its calls.
LIMITS = f"""
{EVERY_LIMIT}
 WHERE project <> %(project)s AND id IN ({KEYED})
    OR project = '' AND enabled
       AND service IN (SELECT service FROM jobs_job WHERE project_id = %(project)s AND finished_at IS NULL)
"""
OWN_LIMITS = "SELECT name FROM ratelimits_limit WHERE project = %(project)s"
POOLS_USED = """
SELECT pool.name, pool.service FROM tenancy_credentialpool_projects AS allowed
  JOIN tenancy_credentialpool AS pool ON pool.id = allowed.credentialpool_id
 WHERE allowed.project_id = %(project)s
"""
ZONES = """
SELECT time_zone FROM ratelimits_budget WHERE project_id = %(project)s
 UNION SELECT time_zone FROM ratelimits_allowance WHERE project_id = %(project)s
"""
KNOWN_ZONES = "SELECT name FROM pg_timezone_names WHERE name = ANY(%s)"
TAKEN = {
    "API keys": ("SELECT digest FROM tenancy_producerkey", "digest"),
    "issuers": ("SELECT issuer FROM tenancy_issuer", "issuer"),
}
SEALED = """
SELECT secret FROM tenancy_credential
 UNION ALL SELECT secret FROM tenancy_issuer WHERE secret IS NOT NULL
 UNION ALL SELECT secret FROM jobs_webhook
 LIMIT 100
"""


WORKERS = """
SELECT kind FROM jobs_executor, jsonb_object_keys(kinds || '{"": 0}') AS kind
 WHERE heartbeat_at > {{now}} - make_interval(secs => %s)
"""
KINDS = "SELECT DISTINCT kind FROM jobs_job WHERE project_id = %s AND finished_at IS NULL"
SEALED_PAYLOADS = """
SELECT trim('"' FROM stored)
  FROM (SELECT coalesce(payload_text, payload::text) AS stored FROM jobs_job
         WHERE project_id IN (SELECT id FROM tenancy_project WHERE encrypted)) AS job
 WHERE starts_with(stored, '"')
 LIMIT 100
"""


def epoch_of(cursor: Cursor) -> str:
    [(value,)] = cursor.execute("SELECT value FROM jobs_epoch").fetchall()
    return str(value)


def check_installations(here: Cursor, there: Cursor) -> None:
    """Raise MoveError unless both databases have the same version of QueueOps, and are different installations."""
    [(whole,)] = there.execute(TABLES).fetchall()
    if not whole:
        raise MoveError("The other database has no QueueOps: run manage.py migrate there.")
    ours, theirs = ({name for (name,) in cursor.execute(MIGRATIONS).fetchall()} for cursor in (here, there))
    if ours != theirs:
        lacking = [f"there lacks {name}" for name in sorted(ours - theirs)]
        lacking += [f"here lacks {name}" for name in sorted(theirs - ours)]
        raise MoveError(f"Both must be of one version, migrated: {_few(lacking)}.")
    if epoch_of(there) == str(Epoch.objects.get()):
        raise MoveError("--to names this installation itself, or a copy of its database.")


def is_there(project: Project, there: Cursor) -> bool:
    """
    Whether this project has been moved to the other installation already.

    Raises:
        MoveError: Another project with its id is there.
    """
    rows = there.execute("SELECT created_at FROM tenancy_project WHERE id = %s", [project.pk]).fetchall()
    if not rows:
        return False
    if project.move == ProjectMove.MOVED and rows == [(project.created_at,)] and project.move_target == epoch_of(there):
        return True
    raise MoveError(f"The other installation has a project {project.pk} already. Nothing was changed.")


def check_project(project: Project, here: Cursor, there: Cursor, ciphers: Ciphers) -> None:
    """Raise a MoveError of one sentence unless the other installation has everything that the project's rows name."""
    for fault in _faults(project, here, there, ciphers):
        raise MoveError(f"{fault} Nothing was changed.")


def unserved_there(here: Cursor, there: Cursor, project_id: str) -> str:
    """
    Say why jobs of the project cannot be carried out there: no worker lives, or no worker has the handler of a kind.
    """
    lease = settings.QUEUEOPS.lease_seconds
    served = {kind for (kind,) in there.execute(with_clocks(WORKERS), [lease]).fetchall()}
    if not served:
        return f"No worker there has given a sign of life for {lease:g} s: start some, or its jobs wait there."
    if unknown := {kind for (kind,) in here.execute(KINDS, [project_id]).fetchall()} - served:
        return f"No worker there knows {_few(unknown)}: jobs of these kinds wait there until one does."
    return ""


def _faults(project: Project, here: Cursor, there: Cursor, ciphers: Ciphers) -> Iterator[str]:
    given = {"project": project.pk}
    [(restored,)] = here.execute(ARCHIVED, given).fetchall()
    if restored:
        yield f"{project.pk} has {restored:,} jobs restored from the archive, which are not moved: wait until they go."
    unfinished = "SELECT FROM jobs_providerbatch WHERE project_id = %(project)s AND closed_at IS NULL LIMIT 1"
    if here.execute(unfinished, given).fetchall():
        yield f"{project.pk} has batches at providers that have not ended: let them end, or cancel them."
    if here.execute("SELECT FROM jobs_bulkoperation WHERE status = 'running'").fetchall():
        yield "A bulk operation is running: let it end, or stop it."
    policies = {name for (name,) in here.execute(POLICIES, given).fetchall()}
    known = {name for (name,) in there.execute("SELECT name FROM jobs_retrypolicy").fetchall()}
    if missing := policies - known:
        yield f"The other installation lacks retry policies that jobs name: {_few(missing)}."
    pools = {tuple(row) for row in here.execute(POOLS_USED, given).fetchall()}
    theirs = {tuple(row) for row in there.execute("SELECT name, service FROM tenancy_credentialpool").fetchall()}
    if lacking := {f"{name} ({service})" for name, service in pools - theirs}:
        yield f"The other installation lacks pools of credentials that the project may use: {_few(lacking)}."
    for what, (statement, column) in TAKEN.items():
        ours = [value for (value,) in here.execute(f"{statement} WHERE project_id = %(project)s", given).fetchall()]
        if there.execute(f"{statement} WHERE {column} = ANY(%s)", [ours]).fetchall():
            yield f"The other installation has {what} of {project.pk} already, in another project."
    yield from _faults_of_zones(given, here, there)
    yield from _faults_of_limits(given, here, there)
    if has_secrets(here, project.pk):
        yield from _faults_of_keys(ciphers.there, there)
    yield from _faults_of_payload_keys(project, there, dict(settings.QUEUEOPS.target_payload_keys))


def _faults_of_zones(given: dict[str, str], here: Cursor, there: Cursor) -> Iterator[str]:
    """
    Yield faults for zones that the database there does not know: a budget in one would keep its workers from claiming
    any job.
    """
    used = {zone for (zone,) in here.execute(ZONES, given).fetchall()}
    known = {zone for (zone,) in there.execute(KNOWN_ZONES, [list(used)]).fetchall()}
    if missing := used - known:
        yield f"PostgreSQL there does not know time zones of budgets or the allowance: {_few(missing)}."


def _faults_of_limits(given: dict[str, str], here: Cursor, there: Cursor) -> Iterator[str]:
    ours: dict[str, str] = dict(here.execute(LIMITS, given).fetchall())
    theirs: dict[str, str] = dict(there.execute(EVERY_LIMIT).fetchall())
    if missing := ours.keys() - theirs.keys():
        yield f"The other installation lacks limits of the project's services: {_few(missing)}."
    if differing := {name for name, meaning in ours.items() if theirs.get(name) != meaning}:
        yield f"Limits of one name count otherwise there: {_few(differing)}."
    if taken := {name for (name,) in here.execute(OWN_LIMITS, given).fetchall()} & theirs.keys():
        yield f"The other installation has limits named like the project's own: {_few(taken)}. Rename or delete them."
    if there.execute(KEYED, given).fetchall():
        yield f"Limits there count or name project:{given['project']} already: another project's credential does."


def _faults_of_keys(cipher: MultiFernet | None, there: Cursor) -> Iterator[str]:
    if cipher is None:
        yield (
            "The project has encrypted secrets: give the other installation's QUEUEOPS_CREDENTIAL_KEYS in "
            "QUEUEOPS_TARGET_CREDENTIAL_KEYS."
        )
    elif not _opens_some(cipher, there):
        yield "QUEUEOPS_TARGET_CREDENTIAL_KEYS opens none of the secrets that are there: these are not its keys."


def _opens_some(cipher: MultiFernet, there: Cursor) -> bool:
    tokens = [bytes(token) for (token,) in there.execute(SEALED).fetchall()]
    return not tokens or any(_opens(cipher, token) for token in tokens)


def _opens(cipher: Fernet | MultiFernet, token: bytes | str) -> bool:
    try:
        cipher.decrypt(token)
    except InvalidToken:
        return False
    return True


def _faults_of_payload_keys(project: Project, there: Cursor, theirs: Mapping[str, str]) -> Iterator[str]:
    """
    Yield what is wrong with the other installation's payload keys: it needs the keys that sealed the payloads here.
    """
    used = keys_used(project.pk)
    if not used and not project.encrypted:
        return
    if not theirs:
        yield (
            "The project's payloads are encrypted: give the other installation's QUEUEOPS_PAYLOAD_KEYS in "
            "QUEUEOPS_TARGET_PAYLOAD_KEYS."
        )
    elif missing := used - theirs.keys():
        yield f"The other installation lacks keys that payloads are encrypted with: {_few(missing)}."
    elif others := {name for name, key in payload_keys().items() if name in used and theirs[name] != key}:
        yield f"The other installation has other keys of the names that payloads are encrypted with: {_few(others)}."
    elif not _known_to(theirs, there):
        yield "QUEUEOPS_TARGET_PAYLOAD_KEYS opens no payload that is encrypted there: these are not its keys."


def _known_to(keys: Mapping[str, str], there: Cursor) -> bool:
    """Whether any payload sealed there opens with the key that it names, or no payload is sealed there."""
    found = [TOKEN.fullmatch(text) for (text,) in there.execute(SEALED_PAYLOADS).fetchall()]
    return not found or any(one and one[1] in keys and _opens(Fernet(keys[one[1]]), one[2]) for one in found)


def cipher_of(keys: Iterable[str]) -> MultiFernet | None:
    made = [Fernet(key) for key in keys]
    return MultiFernet(made) if made else None


def _few(names: Iterable[str]) -> str:
    every = sorted(names)
    more = len(every) - NAMED
    return ", ".join(every[:NAMED]) + (f" and {more} more" if more > 0 else "")
