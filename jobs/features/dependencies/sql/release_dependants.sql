-- Put back jobs whose waiting for others is over, and log it. They begin to wait for their turn now.
--
-- A batch's callback gets the batch's counts. The callback waits on if a requeue has opened the batch again meanwhile:
-- with the failed job queued again, the counts would name no failure.
--
-- params  ids;
--         project: of the jobs;
--         batch: the batch whose waiting is over (null: each job waited by itself);
--         message: what the events say;
--         open_too: whether callbacks are put back even if their batch is open
-- locks   the rows, in id order
-- clock   now(): the transaction's start
-- returns the ids of the callbacks that wait on. All other jobs are put back. A job that a pause or a budget holds
--         stays held, and a job that still waits for others, by itself or with its batch, is left alone
WITH candidate AS MATERIALIZED (
    SELECT id, CASE WHEN ended_batch IS NOT NULL AND NOT %(open_too)s::boolean
                    -- ORDER BY and LIMIT make the planner use the index. Without them it would read all jobs.
                    THEN (SELECT true FROM jobs_job AS part
                           WHERE part.batch_id = (job.ended_batch ->> 'batch')::uuid AND part.status IN {{unfinished}}
                           ORDER BY part.status LIMIT 1) END AS waits_on
      FROM jobs_job AS job
     WHERE id = ANY(%(ids)s::uuid[]) AND project_id = %(project)s::text AND held AND status IN {{waiting}}
       AND (SELECT true FROM jobs_dependency  -- no join, which may read all dependencies
             WHERE owner_id = CASE WHEN %(batch)s::uuid IS NULL THEN job.batch_id ELSE job.id END LIMIT 1) IS NULL
     ORDER BY id
       FOR UPDATE OF job
), moved AS (
    UPDATE jobs_job AS job
       SET held = {{held_otherwise job}},
           ended_batch = CASE WHEN job.ended_batch IS NOT NULL
                              THEN job.ended_batch || jsonb_build_object('counts', (
                                       SELECT to_jsonb(total)
                                         FROM (SELECT {{sum_counts}} FROM jobs_jobcount
                                                WHERE batch_id = (job.ended_batch ->> 'batch')::uuid) AS total)) END,
           eligible_since = greatest(job.eligible_since, {{now}}),
           -- The time until the job's fallback counts from now, too.
           fallback_at = job.fallback_at + (greatest(job.eligible_since, {{now}}) - job.eligible_since),
           updated_at = {{now}}
      FROM candidate
     WHERE job.id = candidate.id AND waits_on IS NULL
    RETURNING job.id, job.project_id, job.user_id, job.batch_id, job.service, job.scheduled_at
), logged AS (
    INSERT INTO jobs_jobevent (job_id, project_id, user_id, batch_id, service, event_type, message, data)
    SELECT id, project_id, user_id, batch_id, service, 'scheduling', %(message)s::text,
           jsonb_build_object('operation', 'waited', 'scheduled_at', scheduled_at)
      FROM moved
)
SELECT id FROM candidate WHERE waits_on
