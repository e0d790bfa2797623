-- The right value of Job.pool: the first pool that fits the job, empty if no pool fits, null if there are no pools.
CASE WHEN EXISTS (SELECT FROM jobs_pool) THEN coalesce((
    SELECT pool.name FROM jobs_pool AS pool
     WHERE (pool.services = '{}' OR EXISTS (
               SELECT FROM unnest(pool.services) AS word
                WHERE job.service = word OR right(word, 1) = '*' AND starts_with(job.service, left(word, -1))))
       AND (pool.kinds = '{}' OR EXISTS (
               SELECT FROM unnest(pool.kinds) AS word
                WHERE job.kind = word OR right(word, 1) = '*' AND starts_with(job.kind, left(word, -1))))
       AND (pool.projects = '{}' OR EXISTS (
               SELECT FROM unnest(pool.projects) AS word
                WHERE job.project_id = word OR right(word, 1) = '*' AND starts_with(job.project_id, left(word, -1))))
     ORDER BY pool.place, pool.name
     LIMIT 1), '') END
