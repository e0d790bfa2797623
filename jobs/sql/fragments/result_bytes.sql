-- The bytes of a job's result as JSON text. A large one of before 1.1 is not unpacked for that, and may be any size.
coalesce(octet_length(job.result_text),
         CASE WHEN pg_column_size(job.result) < 20000 THEN octet_length(job.result::text)
              WHEN job.result IS NOT NULL THEN 8000000 END)
