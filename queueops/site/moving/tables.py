"""
The parts of a project: which rows of which tables move with it to another installation, and in what order.

Each feature names the rows of its own tables in its `moves` and `stays`.
"""

# ruff: noqa: S608 - put together from our own words

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from jobs.features import FEATURES
from queueops.core.moved_rows import NUMBERED, OF_KEY, OF_PROJECT, PROJECT, SEALED, Sort

# The trigger on job states lets only ended and queued jobs be inserted; other jobs get their state by an UPDATE.
JOBS = (
    """
INSERT INTO jobs_job ({columns}, pool, fencing_token)
SELECT {waiting_columns},
       CASE WHEN finished_at IS NULL THEN {pool} END,
       -- No lower than any given out here: executors that claimed the job before it had left would take it for a job of
       -- a database that was put back, and pause everything.
       CASE WHEN first_attempt_at IS NULL THEN 0 ELSE (SELECT last_value FROM jobs_fencing_token) END
  FROM given AS job""",
    """
UPDATE jobs_job AS job SET status = given.status FROM given
 WHERE job.id = given.id AND given.finished_at IS NULL AND given.status <> 'queued'""",
)
LIMIT = "JOIN ratelimits_limit AS lim ON lim.id = own.limit_id"
COUNTED = (
    "state, own.blocked_until, own.blocked_reason, own.pressure, own.pressure_changed_at, own.proposed_capacity,"
    " own.proposed_at, own.pressure_before, own.alert_level, own.shadow_denials, own.updated_at"
)

SORTS = (
    Sort(
        "project", "tenancy_project", f"id = {PROJECT}", frozenset({"move", "move_target", "moved_to"}), is_watched=True
    ),
    Sort("keys", "tenancy_producerkey", leaves=NUMBERED, is_watched=True),
    Sort(
        "issuers", "tenancy_issuer", leaves=NUMBERED | {"secret"}, write=(SEALED,), known_by="issuer", is_watched=True
    ),
    Sort(
        "credentials",
        "tenancy_credential",
        read="SELECT own.name, own.service, own.quota_project, own.quota_user, own.base_url,"
        " own.hosts, own.placement, own.placement_name, own.oauth_scopes"
        " FROM tenancy_credential_projects AS allowed JOIN tenancy_credential AS own ON own.id = allowed.credential_id"
        f" WHERE allowed.project_id = {PROJECT}",
        write=(
            f"{SEALED} ON CONFLICT (name) DO NOTHING",  # the credential exists already if another moved project uses it
            (
                "INSERT INTO tenancy_credential_projects (credential_id, project_id)"
                f" SELECT own.id, {PROJECT} FROM given JOIN tenancy_credential AS own USING (name)"
            ),
        ),
        known_by="name",
        is_watched=True,
    ),
    # The pools themselves are not moved, because other projects may use them. The other installation must have them
    # already, with credentials of its own.
    Sort(
        "use of credential pools",
        "tenancy_credentialpool_projects",
        read="SELECT pool.name, pool.service FROM tenancy_credentialpool_projects AS allowed"
        " JOIN tenancy_credentialpool AS pool ON pool.id = allowed.credentialpool_id"
        f" WHERE allowed.project_id = {PROJECT}",
        write=(
            (
                "INSERT INTO tenancy_credentialpool_projects (credentialpool_id, project_id)"
                f" SELECT pool.id, {PROJECT} FROM given JOIN tenancy_credentialpool AS pool USING (name, service)"
            ),
        ),
        is_watched=True,
    ),
    Sort("user labels", "tenancy_userlabel", is_watched=True),
    *(sort for feature in FEATURES for sort in feature.moves if not sort.names_jobs),
    Sort("batches", "jobs_batch"),
    # Fencing tokens are left out: the other installation gives its own.
    Sort("jobs", "jobs_job", leaves=frozenset({"pool", "fencing_token"}), write=JOBS),
    Sort("tags", "jobs_tag"),
    Sort("dead letters", "jobs_deadletter", is_watched=True),
    *(sort for feature in FEATURES for sort in feature.moves if sort.names_jobs),
    Sort("stored answers", "jobs_idempotencyrecord", leaves=NUMBERED),
    Sort("model routes", "door_modelroute", is_watched=True),
    Sort("batches of doors", "door_doorbatch"),
    Sort(
        "paused batches",
        "jobs_pauseswitch",
        f"scope = 'batch' AND key IN (SELECT id::text FROM jobs_batch WHERE {OF_PROJECT})",
        NUMBERED,
        is_watched=True,
    ),
    Sort(
        "counts of jobs",
        "jobs_jobcount",
        read=f"SELECT project_id, batch_id, {{counts}} FROM jobs_jobcount WHERE {OF_PROJECT} GROUP BY 1, 2",
        write=("INSERT INTO jobs_jobcount ({columns}, shard) SELECT {columns}, pg_backend_pid() FROM given",),
    ),
    Sort("allowance", "ratelimits_allowance", is_watched=True),
    Sort("quotas of users", "ratelimits_allowanceoverride", leaves=NUMBERED, is_watched=True),
    Sort("months of usage", "ratelimits_usagetracking", leaves=NUMBERED),
    Sort("reservations", "ratelimits_usagereservation"),
    Sort("usage events", "ratelimits_usageevent", leaves=NUMBERED),
    Sort("spend", "ratelimits_spend", leaves=NUMBERED),
    Sort("budgets", "ratelimits_budget", leaves=NUMBERED, is_watched=True),
    Sort("decisions", "ratelimits_decideanswer"),
    Sort("caps of calls in flight", "ratelimits_limit", f"project = {PROJECT}", NUMBERED, is_watched=True),
    Sort(
        "limits of its own",
        "ratelimits_limitoverride",
        read="SELECT lim.name AS limit_name, own.key, own.capacity, own.refill_per_second, own.note, own.ends_at,"
        f" own.comes_back_to FROM ratelimits_limitoverride AS own {LIMIT} WHERE {OF_KEY}",
        write=(
            (
                "INSERT INTO ratelimits_limitoverride"
                " (limit_id, key, capacity, refill_per_second, note, ends_at, comes_back_to)"
                " SELECT lim.id, given.key, given.capacity, given.refill_per_second, given.note, given.ends_at,"
                " given.comes_back_to"
                " FROM given JOIN ratelimits_limit AS lim ON lim.name = limit_name"
            ),
        ),
        is_watched=True,
    ),
    Sort(
        "counters of limits",
        "ratelimits_counter",
        read=f"SELECT lim.name AS limit_name, own.key, own.{COUNTED}"
        f" FROM ratelimits_counter AS own {LIMIT} WHERE {OF_KEY}",
        write=(
            (
                f"INSERT INTO ratelimits_counter (id, limit_id, key, {COUNTED.replace('own.', '')})"
                f" SELECT lpad(lim.id::text, 8, '0') || ':' || own.key, lim.id, own.key, own.{COUNTED}"
                " FROM given AS own JOIN ratelimits_limit AS lim ON lim.name =limit_name"
            ),
        ),
    ),
    # Events come last: once the first is written, the other installation's live pages wait for the transaction's end.
    Sort("events", "jobs_jobevent", leaves=frozenset({"id", "xid"})),
)

# The sorts that people may change while a project is paused. Two things that change without people are left out: when a
# key was last used, and resolved dead letters, which house-keeping deletes.
WATCHED = tuple(
    replace(
        sort,
        leaves=sort.leaves | {"last_used_at"},
        rows=f"{sort.rows} AND resolution IS NULL" if sort.name == "dead letters" else sort.rows,
    )
    for sort in SORTS
    if sort.is_watched
)

# Tables with rows of projects that are not moved, each with the reason that people are shown.
STAYS: Mapping[str, str] = {
    **{table: reason for feature in FEATURES for table, reason in feature.stays.items()},
    "access_personaltoken": "personal tokens: people make others there",
    "jobs_auditentry": "the audit trail: it is append-only, and tells what was done here",
    "door_doorfile": "files of doors: upload them there",
    "door_doorfilepart": "their contents",
    "door_doorcall": "calls that clients may repeat: for some minutes",
    "ratelimits_budgetperiod": "periods of budgets: the other installation sums its ledger up anew",
    "ratelimits_budgethold": "what calls under way hold: none may be running",
    "jobs_bulkoperation": "bulk operations: none may be running",
    "ratelimits_alertsilence": "silences of alerts",
    "ratelimits_alertroute": "where alerts are sent",
    "tenancy_credentialsetting": "what servers take: it is learned anew there, or set there",
    "ratelimits_calltally": "figures about calls",
    "ratelimits_counterfeedback": "what refusals did to counters here",
    "ratelimits_costestimate": "what calls have cost: learned anew there",
}
