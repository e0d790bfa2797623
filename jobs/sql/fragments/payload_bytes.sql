-- The bytes of a job's payload as JSON text. A large one of before 1.1 is not unpacked for that, and may be any size.
coalesce(octet_length(job.payload_text),
         CASE WHEN pg_column_size(job.payload) < 20000 THEN octet_length(job.payload::text)
              WHEN job.payload IS NOT NULL THEN 8000000 END)
