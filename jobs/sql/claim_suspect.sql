-- Claim the oldest job that has brought down its process twice: quarantine runs such jobs one at a time.
--
-- params  executor: who claims; lease: seconds
-- locks   the claimed row, SKIP LOCKED; then the counters of this backend alone
-- clock   now(): the transaction's start
-- returns as claim_jobs.sql does
WITH candidate AS MATERIALIZED (
    SELECT job.id
      FROM jobs_job AS job
     WHERE status = 'queued' AND scheduled_at IS NULL AND NOT held AND crash_count >= 2
       AND (expires_at IS NULL OR expires_at > now())
       AND NOT EXISTS (SELECT FROM jobs_pauseswitch
                        WHERE scope = 'global' OR (scope = 'project' AND key = project_id)
                           OR (scope = 'service' AND key = service) OR (scope = 'kind' AND key = kind)
                           OR (scope = 'batch' AND key = batch_id::text))
       AND NOT EXISTS (SELECT FROM jobs_servicebreaker AS breaker
                        WHERE breaker.service = job.service AND breaker.opened_at IS NOT NULL
                          AND breaker.probe_job_id IS DISTINCT FROM job.id)
     ORDER BY eligible_since, job.id
     LIMIT 1
       FOR UPDATE OF job SKIP LOCKED
), moved AS (
    UPDATE jobs_job AS job
       SET status = 'dispatched', executor = %(executor)s::uuid, fencing_token = nextval('jobs_fencing_token'),
           lease_expires_at = now() + %(lease)s::float8 * interval '1 second', updated_at = now()
      FROM candidate
     WHERE job.id = candidate.id
    RETURNING job.*
), logged AS (
    INSERT INTO jobs_jobevent (job_id, project_id, user_id, batch_id, event_type, from_status, to_status, data)
    SELECT id, project_id, user_id, batch_id, 'state_change', 'queued', 'dispatched',
           jsonb_build_object('executor', executor, 'fencing_token', fencing_token, 'quarantine', true)
      FROM moved
), counted AS (
    INSERT INTO jobs_jobcount AS total (project_id, batch_id, shard, queued, dispatched)
    SELECT project_id, coalesce(batch_id, '00000000-0000-0000-0000-000000000000'), pg_backend_pid(), -count(*), count(*)
      FROM moved
     GROUP BY GROUPING SETS ((project_id), (project_id, batch_id))
    HAVING GROUPING(batch_id) = 1 OR batch_id IS NOT NULL
     ORDER BY 1, 2
    ON CONFLICT (project_id, batch_id, shard) DO UPDATE
       SET queued = total.queued + excluded.queued, dispatched = total.dispatched + excluded.dispatched
)
SELECT id, fencing_token, project_id, user_id, batch_id, kind, payload::text AS payload, effect_key, retry_policy_id,
       retry_count, crash_count,
       coalesce(extract(epoch FROM now() - first_attempt_at), 0)::float8 - deferred_seconds AS window_used,
       (SELECT weight FROM tenancy_project WHERE id = project_id) AS weight, 0 AS class
  FROM moved
