-- Choose and lock jobs that may leave with a chosen one as one call.
--
-- params  keys: coalesce keys, each once; most: jobs a key; except: ids chosen already
-- locks   the chosen rows, SKIP LOCKED: never waits
-- clock   now(): the transaction's start
-- returns as choose_jobs.sql does, the oldest of each key first; the token is nobody's
SELECT job.id, 0::bigint AS token, job.project_id, job.user_id, job.batch_id, job.kind, job.payload::text AS payload,
       job.effect_key, job.retry_policy_id, job.retry_count, job.crash_count,
       greatest(0, coalesce(extract(epoch FROM now() - job.first_attempt_at), 0)::float8 - job.deferred_seconds)
           AS window_used,
       1.0::float8 AS weight, 0 AS class, job.service, job.call_type, job.model, job.credential, job.cost,
       job.known_cost, job.lane, job.coalesce_key, job.result::text AS partial, job.status,
       greatest(0, extract(epoch FROM now() - job.eligible_since)::float8) AS waited,
       extract(epoch FROM now())::float8 AS claimed_at,
       job.target, job.path
  FROM unnest(%(keys)s::text[], %(most)s::int[]) AS wanted (key, most)
 CROSS JOIN LATERAL (
       SELECT * FROM jobs_job
        WHERE coalesce_key = wanted.key AND coalesce_key IS NOT NULL
          AND (status = 'rate_limited' OR (scheduled_at IS NULL AND status = 'queued'))
          AND crash_count < 2 AND NOT held AND lane IS NOT NULL
          AND id <> ALL(%(except)s::uuid[])
          AND (expires_at IS NULL OR expires_at > now())
          AND NOT EXISTS (SELECT FROM jobs_pauseswitch
                           WHERE (scope IN ('kind', 'unknown') AND key = kind) OR (scope = 'batch' AND key = batch_id::text))
        ORDER BY eligible_since, id
        LIMIT wanted.most
          FOR UPDATE SKIP LOCKED) AS job
