-- The beginning of the budget's period that contains the time `at`.
CASE WHEN job.period = 'total' THEN 'epoch'::timestamptz ELSE date_trunc(job.period, at, job.time_zone) END
