-- Whether a job that waits for a batch may be collected now. `margin`: seconds before its deadline at which it goes
-- live. A retried job may be collected only if its `scheduled_at` is about the moment when it must go live: it was
-- handed back by a batch. Otherwise its retry is due at `scheduled_at`.
job.scheduled_at > {{now}} AND job.complete_by > {{now}} + %(margin)s::float8 * interval '1 second'
AND (job.status = 'queued'
     OR job.scheduled_at - job.complete_by + %(margin)s::float8 * interval '1 second'
        BETWEEN interval '-1 minute' AND interval '1 minute')
