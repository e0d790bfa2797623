-- An ended batch has no job left, no feature keeps it, and nothing depends on it.
NOT EXISTS (SELECT FROM jobs_job AS inner_job WHERE inner_job.batch_id = job.id)
       AND NOT EXISTS ({{keeps_batch}})
       AND NOT EXISTS (SELECT FROM jobs_dependency AS needed WHERE needed.on_id = job.id)
