-- Count the jobs that wait and run in each pool, up to a bound, and find since when the oldest waits.
--
-- params  most: jobs of a pool counted in lanes, and as many outside of lanes;
--         most_heads: queues, of all pools together, whose oldest job is read
-- locks   none
-- clock   none
-- returns a row for each pool, and a row with an empty name for jobs that no pool names. Columns: name, ready jobs,
--         jobs that a limit keeps in their lanes, running jobs, and the oldest eligible_since of waiting jobs (null:
--         none)
WITH RECURSIVE first AS (
    (SELECT pool, project_id, priority, eligible_since, 1 AS nth FROM jobs_job
      WHERE {{claimable}} AND pool IS NOT NULL
      ORDER BY pool, project_id, priority, eligible_since, id LIMIT 1)
    UNION ALL
    SELECT next.*, first.nth + 1
      FROM first
     CROSS JOIN LATERAL (
           SELECT pool, project_id, priority, eligible_since FROM jobs_job AS job
            WHERE (job.pool, job.project_id, job.priority) > (first.pool, first.project_id, first.priority)
              AND {{claimable}} AND pool IS NOT NULL
            ORDER BY pool, project_id, priority, eligible_since, id LIMIT 1) AS next
     WHERE first.nth < %(most_heads)s::int
), first_in_lane AS (
    (SELECT pool, lane, priority, eligible_since, 1 AS nth FROM jobs_job
      WHERE {{in_lane}} AND pool IS NOT NULL
      ORDER BY pool, lane, priority, eligible_since, id LIMIT 1)
    UNION ALL
    SELECT next.*, first.nth + 1
      FROM first_in_lane AS first
     CROSS JOIN LATERAL (
           SELECT pool, lane, priority, eligible_since FROM jobs_job AS job
            WHERE (job.pool, job.lane, job.priority) > (first.pool, first.lane, first.priority)
              AND {{in_lane}} AND pool IS NOT NULL
            ORDER BY pool, lane, priority, eligible_since, id LIMIT 1) AS next
     WHERE first.nth < %(most_heads)s::int
), oldest AS (
    SELECT pool, min(eligible_since) AS since
      FROM (SELECT pool, eligible_since FROM first UNION ALL SELECT pool, eligible_since FROM first_in_lane) AS head
     GROUP BY pool
), under_way AS (
    SELECT pool, count(*) AS jobs FROM jobs_job WHERE status IN {{running}} AND pool IS NOT NULL GROUP BY pool
)
SELECT pool.name, outside.jobs + inside.ready AS ready, inside.parked, coalesce(under_way.jobs, 0) AS running,
       oldest.since
  FROM (SELECT name, place FROM jobs_pool
         UNION ALL
        SELECT '', NULL WHERE EXISTS (SELECT FROM jobs_pool)) AS pool
 CROSS JOIN LATERAL (
       SELECT count(*) AS jobs
         FROM (SELECT FROM jobs_job
                WHERE jobs_job.pool = pool.name AND {{claimable}}
                ORDER BY project_id, priority, eligible_since, id  -- else all jobs are read for a small pool
                LIMIT %(most)s::int) AS job) AS outside
 CROSS JOIN LATERAL (
       SELECT count(*) FILTER (WHERE status = 'queued') AS ready,
              count(*) FILTER (WHERE status = 'rate_limited') AS parked
         FROM (SELECT status FROM jobs_job
                WHERE jobs_job.pool = pool.name AND {{in_lane}}
                ORDER BY lane, priority, eligible_since, id
                LIMIT %(most)s::int) AS job) AS inside
  LEFT JOIN oldest ON oldest.pool = pool.name
  LEFT JOIN under_way ON under_way.pool = pool.name
 ORDER BY pool.place NULLS LAST, pool.name
