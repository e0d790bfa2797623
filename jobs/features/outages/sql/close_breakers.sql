-- Close the breakers of targets that have just answered, for all projects, and forget their counted failures.
--
-- If another path of the target answers, the failed paths of an open breaker are spared: until they answer, their
-- failures do not count against the target.
--
-- params  services, targets, paths: parallel arrays, one entry a path that answered; most_paths: bound of spared paths
-- locks   the breakers' rows, in order of their keys; none where there has been no failure
-- clock   now(): the transaction's start
-- returns the ids of the breakers changed
WITH answered AS MATERIALIZED (
    SELECT service, target, array_agg(path) AS paths
      FROM unnest(%(services)s::text[], %(targets)s::text[], %(paths)s::int[]) AS given (service, target, path)
     GROUP BY service, target
), candidate AS MATERIALIZED (
    SELECT breaker.id, answered.paths
      FROM answered JOIN jobs_servicebreaker AS breaker USING (service, target)
     WHERE breaker.failures > 0 OR breaker.spared && answered.paths
     ORDER BY breaker.service, breaker.target, breaker.project_id
       FOR UPDATE OF breaker
)
UPDATE jobs_servicebreaker AS breaker
   SET spared = (ARRAY(SELECT unnest(CASE WHEN opened_at IS NULL THEN spared ELSE spared || breaker.paths END)
                       EXCEPT SELECT unnest(candidate.paths)))[:%(most_paths)s::int],
       closed_at = CASE WHEN opened_at IS NULL THEN closed_at ELSE {{now}} END,
       failures = 0, calls = '{}', paths = '{}', opened_at = NULL, probe_job_id = NULL, probed_at = NULL,
       next_probe_at = NULL, probes = 0, holds = 0, updated_at = {{now}}
  FROM candidate
 WHERE breaker.id = candidate.id
RETURNING breaker.id
