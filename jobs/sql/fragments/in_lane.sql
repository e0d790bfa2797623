-- A job that waits in a lane, until the lane has room: the conditions of jobs_job_in_lane_idx, word by word.
(job.status = 'rate_limited' OR (job.scheduled_at IS NULL AND job.status = 'queued'))
AND job.crash_count < 2 AND NOT job.held AND job.lane IS NOT NULL
