-- A job that waits for a batch of its provider: the conditions of jobs_job_batch_lane_idx, word by word.
job.via = 'batch' AND job.status IN ('queued', 'retried') AND job.scheduled_at IS NOT NULL AND NOT job.held
