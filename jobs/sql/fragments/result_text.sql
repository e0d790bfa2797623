-- A job's result as JSON text; as payload_text.
coalesce(job.result_text, job.result::text)
