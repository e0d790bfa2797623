-- Delete open breakers of which no limit or outage holds a job, and for which no job runs or comes back soon.
--
-- Their ready jobs have just been parked, and a job that comes now finds no breaker: it is called as if none had been.
-- If more jobs run or come back than are read, forget_breakers.sql decides.
--
-- params  breakers: ids of the breakers whose waiting jobs were just counted, and are none;
--         most: running jobs, and jobs that come back, that are read
-- locks   the deleted rows, SKIP LOCKED
-- clock   now(): the transaction's start
-- returns the ids
WITH running AS MATERIALIZED (
    SELECT service, project_id, target FROM jobs_job
     WHERE status IN {{running}} AND lease_expires_at IS NOT NULL
     ORDER BY lease_expires_at
     LIMIT %(most)s::int
), coming_back AS MATERIALIZED (
    SELECT service, project_id, target FROM jobs_job
     WHERE status = 'retried' AND scheduled_at < {{now}} + interval '2 minutes'
       AND (NOT status = 'rate_limited' OR lane IS NULL)
     ORDER BY scheduled_at
     LIMIT %(most)s::int
)
DELETE FROM jobs_servicebreaker
 WHERE id = ANY(ARRAY(
    SELECT id FROM jobs_servicebreaker AS breaker
     WHERE id = ANY(%(breakers)s::bigint[]) AND opened_at IS NOT NULL
       AND greatest((SELECT count(*) FROM running), (SELECT count(*) FROM coming_back)) < %(most)s::int
       AND (service, project_id, target) NOT IN (SELECT * FROM running UNION ALL SELECT * FROM coming_back)
       AND NOT EXISTS (SELECT FROM jobs_job AS probe
                        WHERE probe.project_id = breaker.project_id AND probe.id = breaker.probe_job_id
                          AND {{ready probe}})
       FOR UPDATE SKIP LOCKED))
RETURNING id
