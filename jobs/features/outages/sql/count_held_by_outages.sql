-- Note how many jobs wait for each open breaker to close: those parked for it, and those that a limit had parked before.
--
-- params  most: jobs of a breaker that are counted
-- locks   the rows changed, SKIP LOCKED: recording answers does not wait for the counting
-- clock   none
-- returns the ids of the breakers for which no job waits
WITH counted AS MATERIALIZED (
    SELECT silent.id, waiting.jobs
      FROM jobs_servicebreaker AS silent
     CROSS JOIN LATERAL (
           SELECT count(*) AS jobs
             FROM (SELECT FROM jobs_job AS job
                    WHERE job.service = silent.service AND job.call_type = ANY('{read,write}')
                      AND job.project_id = silent.project_id AND job.target = silent.target
                      AND job.status = 'rate_limited' AND NOT job.held
                    LIMIT %(most)s::int) AS held) AS waiting
     WHERE silent.opened_at IS NOT NULL
), changed AS MATERIALIZED (
    SELECT breaker.id, counted.jobs
      FROM counted JOIN jobs_servicebreaker AS breaker USING (id)
     WHERE breaker.opened_at IS NOT NULL AND breaker.holds <> counted.jobs
       FOR UPDATE OF breaker SKIP LOCKED
), written AS (
    UPDATE jobs_servicebreaker AS breaker SET holds = changed.jobs FROM changed WHERE breaker.id = changed.id
)
SELECT id FROM counted WHERE jobs = 0
