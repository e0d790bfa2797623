from django.db import migrations

from jobs.models.guard import DROP_GUARD, guard_sql

EVENT_LOG = """
CREATE SEQUENCE jobs_fencing_token;
CREATE SEQUENCE jobs_jobevent_id;
CREATE TABLE jobs_jobevent (
    id               bigint NOT NULL DEFAULT nextval('jobs_jobevent_id'),
    xid              xid8 NOT NULL DEFAULT pg_current_xact_id(),
    job_id           uuid NOT NULL,
    project_id       varchar(63) NOT NULL,
    user_id          uuid,
    batch_id         uuid,
    event_type       varchar(12) NOT NULL,
    from_status      varchar(12),
    to_status        varchar(12),
    message          text NOT NULL DEFAULT '',
    progress_percent smallint,
    data             jsonb,
    created_at       timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (id, created_at)
) PARTITION BY RANGE (created_at);
CREATE INDEX jobs_jobevent_job_idx ON jobs_jobevent (job_id, id);
CREATE INDEX jobs_jobevent_type_idx ON jobs_jobevent (event_type, created_at);
CREATE TABLE jobs_jobevent_default PARTITION OF jobs_jobevent DEFAULT;
"""

DROP_EVENT_LOG = """
DROP TABLE jobs_jobevent;
DROP SEQUENCE jobs_jobevent_id;
DROP SEQUENCE jobs_fencing_token;
"""

APPEND_ONLY = """
CREATE FUNCTION jobs_refuse_rewriting() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER jobs_jobevent_append_only BEFORE UPDATE ON jobs_jobevent
    FOR EACH ROW EXECUTE FUNCTION jobs_refuse_rewriting();
CREATE TRIGGER jobs_auditentry_append_only BEFORE UPDATE OR DELETE ON jobs_auditentry
    FOR EACH ROW EXECUTE FUNCTION jobs_refuse_rewriting();
"""

DROP_APPEND_ONLY = """
DROP TRIGGER jobs_auditentry_append_only ON jobs_auditentry;
DROP TRIGGER jobs_jobevent_append_only ON jobs_jobevent;
DROP FUNCTION jobs_refuse_rewriting();
"""

# A queue's index keeps an entry for each passed state until vacuum removes it, so vacuum must come by the number
# of dead rows and not by a share of a growing table. Counter rows are rewritten in place: free space on their
# pages keeps those updates out of the index.
STORAGE = """
ALTER TABLE jobs_job SET (
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000,
    autovacuum_analyze_scale_factor = 0.02, autovacuum_analyze_threshold = 5000,
    autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE jobs_jobcount SET (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
    autovacuum_vacuum_cost_delay = 0
);
"""

RESET_STORAGE = """
ALTER TABLE jobs_job RESET (
    autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, autovacuum_analyze_scale_factor,
    autovacuum_analyze_threshold, autovacuum_vacuum_insert_scale_factor, autovacuum_vacuum_insert_threshold,
    autovacuum_vacuum_cost_delay
);
ALTER TABLE jobs_jobcount RESET (
    fillfactor, autovacuum_vacuum_scale_factor, autovacuum_vacuum_threshold, autovacuum_vacuum_cost_delay
);
"""


class Migration(migrations.Migration):
    dependencies = [("jobs", "0001_initial")]

    operations = [
        migrations.RunSQL(EVENT_LOG, DROP_EVENT_LOG),
        migrations.RunSQL(guard_sql(), DROP_GUARD),
        migrations.RunSQL(APPEND_ONLY, DROP_APPEND_ONLY),
        migrations.RunSQL(STORAGE, RESET_STORAGE),
    ]
