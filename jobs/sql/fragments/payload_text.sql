-- A job's payload as JSON text: as it was submitted or, in rows from before 1.1, as jsonb renders it.
coalesce(job.payload_text, job.payload::text)
