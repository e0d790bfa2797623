-- Close the breakers of services that have just answered, and forget their failures.
--
-- params  services
-- locks   the breakers' rows, in order of service; none where there has been no failure
-- clock   now(): the transaction's start
-- returns the services whose failures were forgotten
WITH candidate AS MATERIALIZED (
    SELECT service FROM jobs_servicebreaker
     WHERE service = ANY(%(services)s::text[]) AND failures > 0
     ORDER BY service
       FOR UPDATE
)
UPDATE jobs_servicebreaker AS breaker
   SET failures = 0, opened_at = NULL, probe_job_id = NULL, next_probe_at = NULL, probes = 0, updated_at = now()
  FROM candidate
 WHERE breaker.service = candidate.service
RETURNING breaker.service
