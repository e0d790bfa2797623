-- The service that a job was submitted for. A job that went on another way has another service now.
CASE WHEN job.fallback_step = 0 THEN job.service
     ELSE (SELECT coalesce(first.service, job.service) FROM jobs_jobevent AS first
            WHERE first.job_id = job.id AND first.created_at >= job.created_at ORDER BY first.id LIMIT 1) END
