from django.db import migrations

from queueops.tenancy.row_security import OF_PROJECT, OF_USER, PROJECT, USER, columns, grant, protect

OF_USERS_JOB = f"""{OF_PROJECT} AND ({USER} IS NULL
    OR EXISTS (SELECT FROM jobs_job AS job WHERE job.id = jobs_deadletter.job_id))"""
# Of a user, what they began themselves: an operation has no column for them, its actor ends with their id.
OPERATION = f"""coalesce(parameters ->> 'project_id', parameters -> 'filter' ->> 'project_id') = {PROJECT}
    AND ({USER} IS NULL OR right(actor, 36) = {USER}::text)"""
OWN_WEBHOOK = "EXISTS (SELECT FROM jobs_webhook AS webhook WHERE webhook.id = webhook_id)"
# Limits belong to no project, and so do the entries about them: the API writes these and reads no more than a number.
ENTRY = f"project_id IN ('', {PROJECT})"
OWN_SWITCH = f"""(scope = 'project' AND key = {PROJECT})
    OR (scope = 'batch' AND EXISTS (SELECT FROM jobs_batch AS batch WHERE batch.id::text = key))"""
SWITCH = f"scope IN ('global', 'service', 'kind') OR {OWN_SWITCH}"


class Migration(migrations.Migration):
    dependencies = [
        ("jobs", "0009_batch_user"),
        ("tenancy", "0006_row_security"),
        ("django_q", "0019_alter_task_options_alter_ormq_key_alter_ormq_lock_and_more"),
    ]

    operations = [
        protect("jobs_batch", OF_USER, "SELECT", "INSERT", "UPDATE"),
        protect("jobs_job", OF_USER, "SELECT", "INSERT", "UPDATE"),
        protect("jobs_jobevent", OF_USER, "SELECT", "INSERT"),  # not its partitions: they are reached through it alone
        grant("SEQUENCE jobs_jobevent_id", "USAGE"),
        protect("jobs_jobcount", OF_PROJECT, "SELECT", "INSERT", "UPDATE"),
        protect("jobs_deadletter", OF_USERS_JOB, "SELECT", "UPDATE"),
        protect("jobs_idempotencyrecord", OF_PROJECT, "SELECT", "INSERT", "UPDATE"),
        protect("jobs_bulkoperation", OPERATION, "SELECT", "INSERT", "UPDATE"),
        protect("jobs_auditentry", ENTRY, "INSERT", columns("SELECT", ["id", "created_at"])),
        protect("jobs_pauseswitch", SWITCH, "SELECT", "INSERT", "UPDATE", "DELETE", check=OWN_SWITCH),
        protect("jobs_upload", OF_PROJECT),
        protect("jobs_webhook", OF_PROJECT),
        protect("jobs_webhookdelivery", OWN_WEBHOOK),
        *[grant(f"TABLE jobs_{name}", "SELECT") for name in ("retrypolicy", "agingrule", "servicebreaker")],
        grant("TABLE django_q_ormq", "INSERT", columns("SELECT", ["id"])),
    ]
