-- Rewrite rows of jobs from their log, and log the repair. The counts of jobs stay: they follow the log already.
--
-- params  rows: JSON array, an object a job with every column below, and `differences`: what is changed;
--         actor: the actor that the event names
-- locks   the rows, which the caller has locked in id order
-- clock   now(): the transaction's start
-- returns the ids written; a job whose id is missing runs
WITH given AS MATERIALIZED (
    SELECT * FROM jsonb_to_recordset(%(rows)s::jsonb) AS t (
        id uuid, status text, retry_count int, crash_count int, deferral_count int, fallback_step int, scheduled_at timestamptz,
        progress int, progress_message text, last_error_code text, last_error_message text, created_at timestamptz,
        first_attempt_at timestamptz, started_at timestamptz, finished_at timestamptz, differences jsonb)
), written AS (
    UPDATE jobs_job AS job
       SET status = given.status, retry_count = given.retry_count, crash_count = given.crash_count,
           deferral_count = given.deferral_count, fallback_step = given.fallback_step, scheduled_at = given.scheduled_at, progress = given.progress,
           progress_message = given.progress_message, last_error_code = given.last_error_code,
           last_error_message = given.last_error_message, created_at = given.created_at,
           first_attempt_at = given.first_attempt_at, started_at = given.started_at, finished_at = given.finished_at,
           deferred_since = CASE WHEN given.status = 'rate_limited' THEN coalesce(job.deferred_since, {{now}}) END,
           updated_at = {{now}}
      FROM given
     WHERE job.id = given.id AND job.status NOT IN {{running}}
    RETURNING job.id, job.project_id, job.user_id, job.batch_id, job.service, given.differences
), logged AS (
    INSERT INTO jobs_jobevent (job_id, project_id, user_id, batch_id, service, event_type, message, data)
    SELECT id, project_id, user_id, batch_id, service, 'audit', 'its row was written anew from its log',
           jsonb_build_object('repaired', differences, 'actor', %(actor)s::text)
      FROM written
)
SELECT id FROM written
