-- Choose and lock ready jobs of targets that are out, to park them. A probe is on its way, and is left out until the
-- next probe is due. A claim that has chosen such a late probe finds its row changed: otherwise both probes would run.
--
-- params  most: bound of the statement
-- locks   the chosen rows, SKIP LOCKED
-- clock   now(): the transaction's start
-- returns id, service and target of each
SELECT job.id, breaker.service, breaker.target
  FROM jobs_servicebreaker AS breaker
 CROSS JOIN LATERAL (
       SELECT id FROM jobs_job
        WHERE service = breaker.service AND call_type = ANY('{read,write}') AND project_id = breaker.project_id
          AND target = breaker.target AND {{ready}}
          AND (id IS DISTINCT FROM breaker.probe_job_id OR breaker.next_probe_at <= {{now}})
        LIMIT %(most)s::int
          FOR UPDATE SKIP LOCKED) AS job
 WHERE breaker.opened_at IS NOT NULL
 LIMIT %(most)s::int
