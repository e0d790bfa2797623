-- Choose and lock the oldest job that has brought down its process twice: quarantine runs such jobs one at a time.
--
-- params  strange: kinds that this executor leaves to others
-- locks   the chosen row, SKIP LOCKED
-- clock   now(): the transaction's start
-- returns as choose_jobs.sql does
SELECT job.id, nextval('jobs_fencing_token') AS token, job.project_id, job.user_id, job.batch_id, job.kind,
       job.payload::text AS payload, job.effect_key, job.retry_policy_id, job.retry_count, job.crash_count,
       greatest(0, coalesce(extract(epoch FROM now() - job.first_attempt_at), 0)::float8 - job.deferred_seconds)
           AS window_used,
       (SELECT weight FROM tenancy_project WHERE id = job.project_id) AS weight, 0 AS class,
       job.service, job.call_type, job.model, job.credential, job.cost, job.known_cost,
       job.lane, job.coalesce_key, job.result::text AS partial, job.status,
       greatest(0, extract(epoch FROM now() - job.eligible_since)::float8) AS waited,
       extract(epoch FROM now())::float8 AS claimed_at,
       job.target, job.path
  FROM jobs_job AS job
 WHERE status = 'queued' AND scheduled_at IS NULL AND NOT held AND crash_count >= 2
   -- In an expression that the planner cannot estimate: where most jobs are of one kind it would expect none, and read all.
   AND coalesce(kind <> ALL(%(strange)s::text[]), true)
   AND (expires_at IS NULL OR expires_at > now())
   AND NOT EXISTS (SELECT FROM jobs_pauseswitch
                    WHERE scope = 'global' OR (scope = 'project' AND key = project_id)
                       OR (scope = 'service' AND key = service) OR (scope IN ('kind', 'unknown') AND key = kind)
                       OR (scope = 'batch' AND key = batch_id::text))
   AND NOT EXISTS (SELECT FROM jobs_servicebreaker AS breaker
                    WHERE breaker.service = job.service AND breaker.target = job.target
                      AND breaker.project_id = job.project_id AND breaker.opened_at IS NOT NULL
                      AND breaker.probe_job_id IS DISTINCT FROM job.id)
 ORDER BY eligible_since, job.id
 LIMIT 1
   FOR UPDATE OF job SKIP LOCKED
