-- The beginning of a budget's period in which a time `at` lies.
CASE WHEN job.period = 'total' THEN 'epoch'::timestamptz ELSE date_trunc(job.period, at, job.time_zone) END
