-- Delete breakers that no job waits or runs for, and closed breakers that have not changed for long.
--
-- The jobs of a project and service are read once, however many of its targets have a breaker: there is no index of
-- targets. If more jobs wait than are read, its breakers stay.
--
-- params  kept: seconds; most: jobs read of a project, service and call type, those that limits hold and those ready
-- locks   the deleted rows, SKIP LOCKED
-- clock   now(): the transaction's start
-- returns the ids
WITH asked AS MATERIALIZED (
    SELECT id, service, project_id, target FROM jobs_servicebreaker AS breaker
     WHERE (opened_at IS NOT NULL OR updated_at >= {{now}} - %(kept)s::float8 * interval '1 second')
       AND NOT EXISTS (SELECT FROM jobs_job AS job
                        WHERE job.status IN {{running}} AND job.lease_expires_at IS NOT NULL
                          AND job.service = breaker.service AND job.project_id = breaker.project_id
                          AND job.target = breaker.target)
       -- Keep the breaker for failed jobs whose retry comes soon.
       AND NOT EXISTS (SELECT FROM jobs_job AS job
                        WHERE job.status = 'retried' AND job.scheduled_at < {{now}} + interval '2 minutes'
                          AND (NOT job.status = 'rate_limited' OR job.lane IS NULL)
                          AND job.service = breaker.service AND job.project_id = breaker.project_id
                          AND job.target = breaker.target)
       -- ORDER BY the columns of an index: otherwise the planner reads the whole table for each breaker if many jobs
       -- wait.
       AND (SELECT 1 FROM jobs_job AS job
             WHERE job.service = breaker.service AND job.project_id = breaker.project_id
               AND job.target = breaker.target
               AND job.status = 'rate_limited' AND job.scheduled_at IS NULL AND NOT job.held
             ORDER BY service, project_id, target LIMIT 1) IS NULL
), needed AS MATERIALIZED (
    SELECT own.service, own.project_id, waiting.targets, waiting.is_cut
      FROM (SELECT service, project_id, array_agg(target) AS targets FROM asked GROUP BY service, project_id) AS own
     CROSS JOIN unnest('{read,write}'::text[]) AS one (call_type)
     CROSS JOIN LATERAL (
           SELECT array_agg(DISTINCT target) FILTER (WHERE target = ANY(own.targets)) AS targets,
                  count(*) = %(most)s::int AS is_cut
             FROM (SELECT job.target FROM jobs_job AS job
                    WHERE job.service = own.service AND job.call_type = one.call_type
                      AND job.project_id = own.project_id AND job.status = 'rate_limited' AND NOT job.held
                    ORDER BY service, call_type, project_id, user_id, priority, eligible_since, id
                    LIMIT %(most)s::int) AS limited
            UNION ALL
           SELECT array_agg(DISTINCT target) FILTER (WHERE target = ANY(own.targets)), count(*) = %(most)s::int
             FROM (SELECT job.target FROM jobs_job AS job
                    WHERE job.service = own.service AND job.call_type = one.call_type
                      AND job.project_id = own.project_id AND {{ready job}}
                    ORDER BY service, call_type, project_id, user_id, priority, eligible_since, id
                    LIMIT %(most)s::int) AS ready) AS waiting
)
DELETE FROM jobs_servicebreaker
 WHERE id = ANY(ARRAY(
    SELECT id FROM jobs_servicebreaker AS breaker
     WHERE (opened_at IS NULL AND updated_at < {{now}} - %(kept)s::float8 * interval '1 second')
        OR id IN (SELECT id FROM asked
                   WHERE NOT EXISTS (SELECT FROM needed
                                      WHERE needed.service = asked.service AND needed.project_id = asked.project_id
                                        AND (needed.is_cut OR asked.target = ANY(needed.targets))))
       FOR UPDATE SKIP LOCKED))
RETURNING id
