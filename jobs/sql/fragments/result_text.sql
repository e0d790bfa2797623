-- A job's result as JSON text, by the same rule as payload_text.
coalesce(job.result_text, job.result::text)
