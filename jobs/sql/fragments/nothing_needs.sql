-- No open dead letter, later requeue, person who restored it, or dependency on it or its batch needs an ended job.
NOT EXISTS (SELECT FROM jobs_deadletter AS letter WHERE letter.job_id = job.id AND letter.resolution IS NULL)
       AND NOT EXISTS (SELECT FROM jobs_job AS later WHERE later.origin_id = job.id)
       AND NOT EXISTS (SELECT FROM jobs_restoredjob AS kept WHERE kept.job_id = job.id)
       AND NOT EXISTS (SELECT FROM jobs_dependency AS needed WHERE needed.on_id = job.id)
       AND NOT EXISTS (SELECT FROM jobs_dependency AS needed WHERE needed.on_id = job.batch_id)
