-- Claim and start the next jobs by score and age, from the heads of each project and tier. As in the product, a claim
-- writes one version of the row and two events.
--
-- params  wanted: how many jobs to claim; worker: the claiming worker
-- locks   the claimed rows, SKIP LOCKED
-- clock   now(): the transaction's start
-- returns id and payload, as text
WITH RECURSIVE active AS (
    (SELECT project_id FROM jobs_job
      WHERE status = 'queued' AND scheduled_at IS NULL AND NOT held AND crash_count < 2 AND lane IS NULL
      ORDER BY project_id, priority, eligible_since, id LIMIT 1)
    UNION ALL
    SELECT (SELECT job.project_id FROM jobs_job AS job
             WHERE job.project_id > active.project_id
               AND job.status = 'queued' AND job.scheduled_at IS NULL AND NOT job.held AND job.crash_count < 2
               AND job.lane IS NULL
             ORDER BY job.project_id, job.priority, job.eligible_since, job.id LIMIT 1)
      FROM active WHERE active.project_id IS NOT NULL
), head AS MATERIALIZED (
    SELECT job.id
      FROM active
     CROSS JOIN (VALUES ('urgent'), ('normal'), ('low')) AS tier (name)
     CROSS JOIN LATERAL (
           SELECT id, eligible_since, extract(epoch FROM now() - eligible_since) AS age FROM jobs_job
            WHERE project_id = active.project_id AND priority = tier.name
              AND status = 'queued' AND scheduled_at IS NULL AND NOT held AND crash_count < 2 AND lane IS NULL
            ORDER BY eligible_since, id
            LIMIT 2 * %(wanted)s::int) AS job
     ORDER BY CASE tier.name
              WHEN 'urgent' THEN 100
              WHEN 'normal' THEN CASE WHEN age < 900 THEN 10 ELSE least(99, 20 + floor((age - 900) / 3600)) END
              ELSE CASE WHEN age < 1800 THEN 1 WHEN age < 7200 THEN 5 + floor((age - 1800) / 1800)
                        WHEN age < 8100 THEN 10 ELSE least(99, 20 + floor((age - 8100) / 3600)) END
              END DESC, eligible_since, id
), candidate AS MATERIALIZED (
    SELECT job.id
      FROM head
     CROSS JOIN LATERAL (
           SELECT id FROM jobs_job
            WHERE id = head.id AND status = 'queued' AND scheduled_at IS NULL AND NOT held
              FOR UPDATE SKIP LOCKED) AS job
     LIMIT %(wanted)s::int
), moved AS (
    UPDATE jobs_job
       SET status = 'in_progress', executor = %(worker)s::uuid, fencing_token = 1,
           lease_expires_at = now() + interval '30 seconds', started_at = now(),
           first_attempt_at = coalesce(first_attempt_at, now()), updated_at = now()
     WHERE id = ANY(ARRAY(SELECT id FROM candidate))
    RETURNING id, project_id, user_id, batch_id, service, payload_text
), logged AS (
    INSERT INTO jobs_jobevent (job_id, project_id, user_id, batch_id, service, event_type, from_status, to_status)
    SELECT id, project_id, user_id, batch_id, service, 'state_change', step.before, step.after
      FROM moved CROSS JOIN (VALUES ('queued', 'dispatched'), ('dispatched', 'in_progress')) AS step (before, after)
)
SELECT id::text, payload_text FROM moved
