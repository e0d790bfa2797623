-- Give waiting jobs a new time to run, and log it. Their state stays: a new time is no transition.
--
-- A job whose waiting has not begun begins to wait at its new time, earlier or later. Other jobs keep their age.
--
-- params  ids; delay: seconds from now (0: at once); actor, message: parts of the logged event
-- locks   the rows, in id order; waits for locked rows
-- clock   now(): the transaction's start
-- returns the ids scheduled; a job that is left out does not wait
WITH candidate AS MATERIALIZED (
    SELECT id FROM jobs_job
     WHERE id = ANY(%(ids)s::uuid[]) AND status IN {{waiting}}
     ORDER BY id
       FOR UPDATE
), moved AS (
    -- Queued jobs without a time are in the ready index. Jobs in other states need a time, by which they are promoted.
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
