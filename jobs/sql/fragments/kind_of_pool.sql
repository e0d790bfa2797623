-- A job's kind, told apart by the job's pool: its workers may know others than those of another one.
coalesce(job.pool, '') || ' ' || job.kind
