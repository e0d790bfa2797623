-- Put back jobs whose waiting for others is over, and log it. They begin to wait for their turn now; the callback of a
-- batch is told the batch's counts.
--
-- params  ids; project: whose they are; batch: whose waiting is over (null: it is that of each by itself); message: what
--         the events say
-- locks   the rows, in id order
-- clock   now(): the transaction's start
-- returns the ids put back. One that a pause or a budget holds stays held, and is among them; one that waits for others
--         by itself, or with its batch, is not
WITH candidate AS MATERIALIZED (
    SELECT id FROM jobs_job AS job
     WHERE id = ANY(%(ids)s::uuid[]) AND project_id = %(project)s::text AND held AND status IN {{waiting}}
       AND NOT EXISTS (SELECT FROM jobs_dependency
                        WHERE owner_id = CASE WHEN %(batch)s::uuid IS NULL THEN job.batch_id ELSE job.id END)
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
           eligible_since = greatest(job.eligible_since, now()),
           -- How long it may wait for a limit counts from now, too.
           fallback_at = job.fallback_at + (greatest(job.eligible_since, now()) - job.eligible_since),
           updated_at = now()
      FROM candidate
     WHERE job.id = candidate.id
    RETURNING job.id, job.project_id, job.user_id, job.batch_id, job.service, job.scheduled_at
), logged AS (
    INSERT INTO jobs_jobevent (job_id, project_id, user_id, batch_id, service, event_type, message, data)
    SELECT id, project_id, user_id, batch_id, service, 'scheduling', %(message)s::text,
           jsonb_build_object('operation', 'waited', 'scheduled_at', scheduled_at)
      FROM moved
)
SELECT id FROM moved
