-- True for a breaker that is open for the job's target.
breaker.service = job.service AND breaker.target = job.target AND breaker.project_id = job.project_id
AND breaker.opened_at IS NOT NULL
