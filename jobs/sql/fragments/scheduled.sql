-- A job that waits for its scheduled time: the conditions of the indexes of HAS_A_TIME, and a time in the future.
job.status = 'queued' AND job.scheduled_at > {{now}} AND (job.via IS NULL OR job.via <> 'batch')
