-- True for an ended job with no open dead letter, no requeue, no restorer, and no dependency on it or on its batch.
NOT EXISTS (SELECT FROM jobs_deadletter AS letter WHERE letter.job_id = job.id AND letter.resolution IS NULL)
       AND NOT EXISTS (SELECT FROM jobs_job AS later WHERE later.origin_id = job.id)
       AND NOT EXISTS (SELECT FROM jobs_restoredjob AS kept WHERE kept.job_id = job.id)
       AND NOT EXISTS (SELECT FROM jobs_dependency AS needed WHERE needed.on_id = job.id)
       AND NOT EXISTS (SELECT FROM jobs_dependency AS needed WHERE needed.on_id = job.batch_id)
