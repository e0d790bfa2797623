-- The beginning of the budget's period that contains the time `at`; null if the database does not know its zone. Without
-- this check one budget's zone would stop the calls of all projects.
CASE WHEN job.period = 'total' THEN 'epoch'::timestamptz
     ELSE date_trunc(job.period, at, ratelimits_known_zone(job.time_zone)) END
