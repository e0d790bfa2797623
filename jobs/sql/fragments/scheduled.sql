-- A job that waits for its time: the conditions of the indexes of HAS_A_TIME, and the time is to come.
job.status = 'queued' AND job.scheduled_at > {{now}} AND (job.via IS NULL OR job.via <> 'batch')
