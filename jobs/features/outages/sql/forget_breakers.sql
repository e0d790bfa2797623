-- Delete breakers that no job waits or runs for, and closed breakers that have not changed for long.
--
-- params  kept: seconds
-- locks   the deleted rows, SKIP LOCKED
-- clock   now(): the transaction's start
-- returns the ids
DELETE FROM jobs_servicebreaker
 WHERE id = ANY(ARRAY(
    SELECT id FROM jobs_servicebreaker AS breaker
     WHERE (opened_at IS NULL AND updated_at < {{now}} - %(kept)s::float8 * interval '1 second')
        -- ORDER BY the columns of an index: otherwise the planner reads the whole table for each breaker if many jobs
        -- wait.
        OR ((SELECT 1 FROM unnest('{read,write}'::text[]) AS one (call_type)
              CROSS JOIN LATERAL (
                    SELECT FROM jobs_job AS job
                     WHERE job.service = breaker.service AND job.call_type = one.call_type
                       AND job.project_id = breaker.project_id AND job.target = breaker.target
                       AND job.status = 'rate_limited' AND NOT job.held
                     ORDER BY service, call_type, project_id, user_id, priority, eligible_since, id LIMIT 1) AS waiting
              LIMIT 1) IS NULL
            AND (SELECT 1 FROM unnest('{read,write}'::text[]) AS one (call_type)
              CROSS JOIN LATERAL (
                    SELECT FROM jobs_job AS job
                     WHERE job.service = breaker.service AND job.call_type = one.call_type
                       AND job.project_id = breaker.project_id AND job.target = breaker.target
                       AND {{ready job}}
                     ORDER BY service, call_type, project_id, user_id, priority, eligible_since, id LIMIT 1) AS waiting
              LIMIT 1) IS NULL
            AND NOT EXISTS (SELECT FROM jobs_job AS job
                             WHERE job.status IN {{running}} AND job.lease_expires_at IS NOT NULL
                               AND job.service = breaker.service AND job.project_id = breaker.project_id
                               AND job.target = breaker.target)
            -- Keep the breaker for failed jobs whose retry comes soon.
            AND NOT EXISTS (SELECT FROM jobs_job AS job
                             WHERE job.status = 'retried' AND job.scheduled_at < {{now}} + interval '2 minutes'
                               AND (NOT job.status = 'rate_limited' OR job.lane IS NULL)
                               AND job.service = breaker.service AND job.project_id = breaker.project_id
                               AND job.target = breaker.target))
       FOR UPDATE SKIP LOCKED))
RETURNING id
