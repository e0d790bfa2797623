-- A job that has not expired: house-keeping ends expired jobs.
(job.expires_at IS NULL OR job.expires_at > {{now}})
