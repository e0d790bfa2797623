-- When the period of a budget began that a time `at` lies in.
CASE WHEN job.period = 'total' THEN 'epoch'::timestamptz ELSE date_trunc(job.period, at, job.time_zone) END
