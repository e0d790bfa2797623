-- The bytes of JSON text that a claim reads of a job: its payload and partial result. A large jsonb value from before
-- 1.1 is not decompressed to measure it, but counts as 8 MB.
coalesce(octet_length(job.payload_text),
         CASE WHEN pg_column_size(job.payload) < 20000 THEN octet_length(job.payload::text) ELSE 8000000 END)
+ coalesce(octet_length(job.result_text),
           CASE WHEN pg_column_size(job.result) < 20000 THEN octet_length(job.result::text)
                WHEN job.result IS NOT NULL THEN 8000000 END, 0)
