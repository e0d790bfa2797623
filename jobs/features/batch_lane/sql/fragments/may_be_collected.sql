-- Whether a job that waits for a batch may be collected now. `margin`: seconds before its deadline at which it
-- goes live. One that is tried again waits for its turn, unless it was handed back until it must go live.
job.scheduled_at > {{now}} AND job.complete_by > {{now}} + %(margin)s::float8 * interval '1 second'
AND (job.status = 'queued'
     OR job.scheduled_at - job.complete_by + %(margin)s::float8 * interval '1 second'
        BETWEEN interval '-1 minute' AND interval '1 minute')
