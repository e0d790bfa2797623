-- Write the latest progress of running jobs, and log it.
--
-- params  ids, tokens, percents, messages: parallel arrays, one entry a job
-- locks   the rows, in id order
-- clock   now(): the transaction's start
-- returns the ids written; this executor no longer owns a job that is left out
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(%(ids)s::uuid[], %(tokens)s::bigint[], %(percents)s::int[], %(messages)s::text[])
                  AS t (id, token, percent, message)
), candidate AS MATERIALIZED (
    SELECT given.*
      FROM given JOIN jobs_job AS job ON job.id = given.id
     WHERE job.status IN {{running}} AND job.fencing_token = given.token
     ORDER BY job.id
       FOR UPDATE OF job
), moved AS (
    UPDATE jobs_job AS job
       SET progress = candidate.percent, progress_message = candidate.message, updated_at = {{now}}
      FROM candidate
     WHERE job.id = candidate.id
    RETURNING job.id, job.project_id, job.user_id, job.batch_id, job.service, candidate.percent, candidate.message
), logged AS (
    INSERT INTO jobs_jobevent (job_id, project_id, user_id, batch_id, service, event_type, message, progress_percent)
    SELECT id, project_id, user_id, batch_id, service, 'progress', message, percent FROM moved
)
SELECT id FROM moved
