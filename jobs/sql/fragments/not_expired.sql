-- A job that house-keeping need not end.
(job.expires_at IS NULL OR job.expires_at > {{now}})
