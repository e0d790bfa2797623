-- Neither a job nor a message is left of an ended batch, and nothing waits for it.
NOT EXISTS (SELECT FROM jobs_job AS inner_job WHERE inner_job.batch_id = job.id)
       AND NOT EXISTS (SELECT FROM jobs_webhookdelivery AS delivery WHERE delivery.batch_id = job.id)
       AND NOT EXISTS (SELECT FROM jobs_dependency AS needed WHERE needed.on_id = job.id)
