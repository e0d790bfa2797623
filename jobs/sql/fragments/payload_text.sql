-- A job's payload as JSON text: as it was written, or of a row of before 1.1 as jsonb gives it back.
coalesce(job.payload_text, job.payload::text)
