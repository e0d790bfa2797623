-- Make scheduled, deferred and retried jobs claimable when their time has come. Jobs parked in a lane are left out:
-- their time is a forecast, and the lane releases them. Jobs that waited for a provider batch go live instead.
--
-- params  most: how many jobs in one statement; target: the state that the jobs move to, `queued`
-- locks   the promoted rows, SKIP LOCKED: a skipped row is being promoted by another executor, or is promoted next time
-- clock   now(): the transaction's start
-- returns one row: how many were promoted, and the seconds until the next is due (null: no job waits for a time)
WITH candidate AS MATERIALIZED (
    SELECT id, status, via FROM jobs_job
     WHERE status IN {{waiting}} AND scheduled_at <= {{now}}
       AND (NOT status = 'rate_limited' OR lane IS NULL)
     ORDER BY scheduled_at
     LIMIT %(most)s::int
       FOR UPDATE SKIP LOCKED
), moved AS (
    UPDATE jobs_job AS job
       SET status = %(target)s::text, scheduled_at = NULL, updated_at = {{now}},
           -- As in transition_jobs.sql: the retry window stands still while a limit holds a job back.
           deferred_seconds = job.deferred_seconds
               + CASE WHEN job.first_attempt_at IS NULL OR job.deferred_since IS NULL THEN 0
                      ELSE greatest(0, extract(epoch FROM {{now}} - job.deferred_since)) END,
           deferred_since = NULL,
           via = CASE WHEN job.via IS NOT NULL THEN 'live' END
      FROM candidate
     WHERE job.id = candidate.id
    RETURNING job.id, job.project_id, job.user_id, job.batch_id, job.service, candidate.status AS left_status,
              candidate.via = 'batch' AS turns_live
), logged AS (
    INSERT INTO jobs_jobevent (job_id, project_id, user_id, batch_id, service, event_type, from_status, to_status,
                               message, data)
    SELECT id, project_id, user_id, batch_id, service,
           CASE left_status WHEN 'queued' THEN 'scheduling' ELSE 'state_change' END,
           CASE left_status WHEN 'queued' THEN NULL ELSE left_status END,
           CASE left_status WHEN 'queued' THEN NULL ELSE %(target)s::text END,
           CASE WHEN turns_live THEN 'its time has come: it goes live' ELSE 'its time has come' END,
           CASE WHEN turns_live THEN '{"scheduled_at": null, "via": "live"}'::jsonb ELSE '{"scheduled_at": null}' END
      FROM moved
), counted AS (
    INSERT INTO jobs_jobcount AS total (project_id, batch_id, shard, {{counts}})
    SELECT project_id, coalesce(batch_id, '00000000-0000-0000-0000-000000000000'), pg_backend_pid(),
           {{count_moves}}
      FROM moved
     GROUP BY GROUPING SETS ((project_id), (project_id, batch_id))
    HAVING GROUPING(batch_id) = 1 OR batch_id IS NOT NULL
     ORDER BY 1, 2
    {{add_counts}}
)
SELECT (SELECT count(*) FROM moved)::int AS promoted,
       (SELECT extract(epoch FROM min(scheduled_at) - {{now}}) FROM jobs_job
         WHERE status IN {{waiting}} AND scheduled_at > {{now}}
           AND (NOT status = 'rate_limited' OR lane IS NULL))::float8 AS next_due
