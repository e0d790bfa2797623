-- True for an ended batch that has no job left, that no feature keeps, and on which nothing depends.
NOT EXISTS (SELECT FROM jobs_job AS inner_job WHERE inner_job.batch_id = job.id)
       AND NOT EXISTS ({{keeps_batch}})
       AND NOT EXISTS (SELECT FROM jobs_dependency AS needed WHERE needed.on_id = job.id)
