-- Find kinds of which a job that no pool names is the next of its project and tier, or of its lane and tier.
--
-- params  most: queues looked at, in lanes and outside of them
-- locks   none
-- clock   none
-- returns kind, and since when the oldest such job of it waits
WITH RECURSIVE first AS (
    (SELECT project_id, priority, eligible_since, kind, pool, 1 AS nth FROM jobs_job
      WHERE {{ready}} AND crash_count < 2 AND lane IS NULL
      ORDER BY project_id, priority, eligible_since, id LIMIT 1)
    UNION ALL
    SELECT next.*, first.nth + 1
      FROM first
     CROSS JOIN LATERAL (
           SELECT project_id, priority, eligible_since, kind, pool FROM jobs_job AS job
            WHERE (job.project_id, job.priority) > (first.project_id, first.priority)
              AND {{ready}} AND crash_count < 2 AND lane IS NULL
            ORDER BY project_id, priority, eligible_since, id LIMIT 1) AS next
     WHERE first.nth < %(most)s::int
), first_in_lane AS (
    (SELECT lane, priority, eligible_since, kind, pool, 1 AS nth FROM jobs_job
      WHERE {{in_lane}}
      ORDER BY lane, priority, eligible_since, id LIMIT 1)
    UNION ALL
    SELECT next.*, first.nth + 1
      FROM first_in_lane AS first
     CROSS JOIN LATERAL (
           SELECT lane, priority, eligible_since, kind, pool FROM jobs_job AS job
            WHERE (job.lane, job.priority) > (first.lane, first.priority)
              AND {{in_lane}}
            ORDER BY lane, priority, eligible_since, id LIMIT 1) AS next
     WHERE first.nth < %(most)s::int
)
SELECT kind, min(eligible_since) AS since
  FROM (SELECT kind, pool, eligible_since FROM first UNION ALL SELECT kind, pool, eligible_since FROM first_in_lane) AS head
 WHERE pool IS NULL
 GROUP BY kind
 ORDER BY kind
