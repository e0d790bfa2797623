-- Count failures that are a service's fault, and open its breaker at the threshold.
--
-- params  service, count, error: what failed; threshold: consecutive failures that open it;
--         first_probe: seconds from opening to the first probe
-- locks   the breaker's row
-- clock   now(): the transaction's start
-- returns one row: whether the breaker is open
INSERT INTO jobs_servicebreaker AS breaker (service, failures, last_error, opened_at, next_probe_at, updated_at)
VALUES (%(service)s, %(count)s::int, %(error)s,
        CASE WHEN %(count)s::int >= %(threshold)s::int THEN now() END,
        CASE WHEN %(count)s::int >= %(threshold)s::int THEN now() + %(first_probe)s::float8 * interval '1 second' END,
        now())
ON CONFLICT (service) DO UPDATE
   SET failures = breaker.failures + excluded.failures,
       last_error = excluded.last_error,
       probe_job_id = NULL,  -- or the failed probe would be claimed again at once, and for ever
       opened_at = coalesce(breaker.opened_at,
                            CASE WHEN breaker.failures + excluded.failures >= %(threshold)s::int THEN now() END),
       next_probe_at = coalesce(breaker.next_probe_at,
                                CASE WHEN breaker.failures + excluded.failures >= %(threshold)s::int
                                     THEN now() + %(first_probe)s::float8 * interval '1 second' END),
       updated_at = now()
RETURNING opened_at IS NOT NULL
