-- Write the latest progress of running jobs, and log it.
--
-- params  ids, tokens, percents, messages: parallel arrays, one entry a job
-- locks   the rows, in id order
-- clock   now(): the transaction's start
-- returns the ids written; a missing one is not this executor's any more
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(%(ids)s::uuid[], %(tokens)s::bigint[], %(percents)s::int[], %(messages)s::text[])
                  AS t (id, token, percent, message)
), candidate AS MATERIALIZED (
    SELECT job.id FROM jobs_job AS job
     WHERE job.id = ANY(%(ids)s::uuid[]) AND job.status IN ('dispatched', 'in_progress')
     ORDER BY job.id
       FOR UPDATE
), moved AS (
    UPDATE jobs_job AS job
       SET progress = given.percent, progress_message = given.message, updated_at = now()
      FROM candidate JOIN given USING (id)
     WHERE job.id = candidate.id AND job.fencing_token = given.token
    RETURNING job.id, job.project_id, job.user_id, job.batch_id, given.percent, given.message
), logged AS (
    INSERT INTO jobs_jobevent (job_id, project_id, user_id, batch_id, event_type, message, progress_percent)
    SELECT id, project_id, user_id, batch_id, 'progress', message, percent FROM moved
)
SELECT id FROM moved
