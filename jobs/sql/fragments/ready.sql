-- A job that may be claimed: the conditions of the ready index, word by word.
job.status = 'queued' AND job.scheduled_at IS NULL AND NOT job.held
