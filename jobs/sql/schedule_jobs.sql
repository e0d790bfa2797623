-- Give waiting jobs a new time to run, and log it. Their state stays: a new time is no transition.
--
-- A job that has not begun to wait begins at its new time, earlier or later; the age of one that has is kept.
--
-- params  ids; delay: seconds from now, 0: at once; actor, message: what the event says
-- locks   the rows, in id order; waits rather than skips
-- clock   now(): the transaction's start
-- returns the ids scheduled; a missing one does not wait
WITH candidate AS MATERIALIZED (
    SELECT id FROM jobs_job
     WHERE id = ANY(%(ids)s::uuid[]) AND status IN {{waiting}}
     ORDER BY id
       FOR UPDATE
), moved AS (
    -- The ready index holds queued jobs without a time; the other states reach it by promotion, which goes by time.
    UPDATE jobs_job AS job
       SET scheduled_at = CASE WHEN job.status <> 'queued' OR %(delay)s::float8 > 0
                               THEN {{now}} + %(delay)s::float8 * interval '1 second' END,
           eligible_since = CASE WHEN job.eligible_since > {{now}} THEN {{now}} + %(delay)s::float8 * interval '1 second'
                                 ELSE job.eligible_since END,
           updated_at = {{now}}
      FROM candidate
     WHERE job.id = candidate.id
    RETURNING job.id, job.project_id, job.user_id, job.batch_id, job.service, job.scheduled_at
), logged AS (
    INSERT INTO jobs_jobevent (job_id, project_id, user_id, batch_id, service, event_type, message, data)
    SELECT id, project_id, user_id, batch_id, service, 'scheduling', %(message)s::text,
           jsonb_build_object('operation', 'schedule', 'delay_seconds', %(delay)s::float8,
                              'scheduled_at', scheduled_at, 'actor', %(actor)s::text)
      FROM moved
)
SELECT id FROM moved
