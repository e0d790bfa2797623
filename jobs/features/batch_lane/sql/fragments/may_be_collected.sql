-- Whether a job that waits for a batch may be collected now. `margin`: seconds before its deadline at which it goes
-- live. A retried job may be collected only if a batch handed it back: its `scheduled_at` is then about the moment when
-- it must go live. Otherwise its retry is due at `scheduled_at`.
job.scheduled_at > {{now}} AND job.complete_by > {{now}} + %(margin)s::float8 * interval '1 second'
AND (job.status = 'queued'
     OR job.scheduled_at - job.complete_by + %(margin)s::float8 * interval '1 second'
        BETWEEN interval '-1 minute' AND interval '1 minute')
