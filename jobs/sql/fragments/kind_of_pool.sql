-- A job's pool and kind in one text: the workers of different pools may have different handlers.
coalesce(job.pool, '') || ' ' || job.kind
