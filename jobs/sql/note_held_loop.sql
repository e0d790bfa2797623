-- Log on each job that its handler held the event loop of its worker, and raise the job's crash_count.
--
-- params  ids, tokens, seconds (how long the loop was held), crashes (the least crash_count of the job from now on):
--         parallel arrays (a job may be in them twice)
-- locks   the rows of the jobs that these claims still run, in id order
-- clock   now(): the transaction's start
-- returns the ids of the jobs logged
WITH given AS MATERIALIZED (
    SELECT id, token, max(seconds) AS seconds, max(crashes) AS crashes
      FROM unnest(%(ids)s::uuid[], %(tokens)s::bigint[], %(seconds)s::float8[], %(crashes)s::int[])
           AS t (id, token, seconds, crashes)
     GROUP BY id, token
), candidate AS MATERIALIZED (
    SELECT job.id, given.seconds, greatest(job.crash_count, given.crashes) AS crashes
      FROM given JOIN jobs_job AS job ON job.id = given.id
     WHERE job.fencing_token = given.token AND job.status IN {{running}}
     ORDER BY job.id
       FOR UPDATE OF job
), counted AS (
    UPDATE jobs_job AS job SET crash_count = candidate.crashes, updated_at = {{now}}
      FROM candidate
     WHERE job.id = candidate.id
    RETURNING job.id, job.project_id, job.user_id, job.batch_id, job.service, job.fencing_token, job.crash_count,
              candidate.seconds
)
INSERT INTO jobs_jobevent (job_id, project_id, user_id, batch_id, service, event_type, message, data)
SELECT id, project_id, user_id, batch_id, service, 'error',
       'its handler held the loop of its worker for ' || round(seconds::numeric, 1) || ' s',
       jsonb_build_object('operation', 'loop_held', 'held_ms', round(seconds * 1000), 'crash_count', crash_count,
                          'fencing_token', fencing_token)
  FROM counted
RETURNING job_id
