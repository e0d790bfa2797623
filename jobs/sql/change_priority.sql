-- Give waiting jobs another priority, and log it. The jobs keep their age: eligible_since does not change.
--
-- params  ids; priority; actor, message: parts of the logged event
-- locks   the rows, in id order; waits for locked rows
-- clock   now(): the transaction's start
-- returns the ids changed; a job that is left out does not wait, or has this priority already
WITH candidate AS MATERIALIZED (
    SELECT id, priority FROM jobs_job
     WHERE id = ANY(%(ids)s::uuid[]) AND status IN {{waiting}}
       AND priority <> %(priority)s::text
     ORDER BY id
       FOR UPDATE
), moved AS (
    UPDATE jobs_job AS job
       SET priority = %(priority)s::text, updated_at = {{now}}
      FROM candidate
     WHERE job.id = candidate.id
    RETURNING job.id, job.project_id, job.user_id, job.batch_id, job.service, candidate.priority AS from_priority
), logged AS (
    INSERT INTO jobs_jobevent (job_id, project_id, user_id, batch_id, service, event_type, message, data)
    SELECT id, project_id, user_id, batch_id, service, 'audit', %(message)s::text,
           jsonb_build_object('from_priority', from_priority, 'priority', %(priority)s::text, 'actor', %(actor)s::text)
      FROM moved
)
SELECT id FROM moved
