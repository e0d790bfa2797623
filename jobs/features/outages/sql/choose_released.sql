-- Choose and lock parked jobs whose target is no longer out, or never was.
--
-- params  most: bound of the statement
-- locks   the chosen rows, SKIP LOCKED
-- clock   none
-- returns id, service and target of each
WITH RECURSIVE parked AS (
    (SELECT service, project_id, target FROM jobs_job
      WHERE status = 'rate_limited' AND scheduled_at IS NULL AND NOT held
      ORDER BY service, project_id, target LIMIT 1)
    UNION ALL
    SELECT next.*
      FROM parked
     CROSS JOIN LATERAL (
           SELECT service, project_id, target FROM jobs_job AS job
            WHERE (job.service, job.project_id, job.target) > (parked.service, parked.project_id, parked.target)
              AND status = 'rate_limited' AND scheduled_at IS NULL AND NOT held
            ORDER BY service, project_id, target LIMIT 1) AS next
)
SELECT job.id, job.service, job.target
  FROM parked
 CROSS JOIN LATERAL (
       SELECT id, service, target FROM jobs_job
        WHERE service = parked.service AND project_id = parked.project_id AND target = parked.target
          AND status = 'rate_limited' AND scheduled_at IS NULL AND NOT held
        -- No ORDER BY: with one, each part would sort all the jobs that are left. The claim orders them anyway.
        LIMIT %(most)s::int
          FOR UPDATE SKIP LOCKED) AS job
 WHERE NOT EXISTS (SELECT FROM jobs_servicebreaker AS breaker
                    WHERE {{does_not_answer parked}})
 LIMIT %(most)s::int
