-- List lanes with waiting jobs, in the order of their names, by one index probe for each lane. The variant `pooled`,
-- with the parameter `pool`, lists lanes with jobs of that pool.
--
-- params  after: the last lane of the previous list; most: how many lanes
-- locks   none
-- clock   none
-- returns lane, and the most urgent priority of its jobs
WITH RECURSIVE waiting AS (
    (SELECT lane, 1 AS nth FROM jobs_job
      WHERE {{in_lane}} AND {{of_pool}} AND lane > %(after)s::text
      ORDER BY lane LIMIT 1)
    UNION ALL
    SELECT (SELECT job.lane FROM jobs_job AS job
             WHERE {{in_lane job}} AND {{of_pool job}} AND job.lane > waiting.lane
             ORDER BY job.lane LIMIT 1), waiting.nth + 1
      FROM waiting
     WHERE waiting.lane IS NOT NULL AND waiting.nth < %(most)s::int
)
SELECT lane,
       (SELECT priority FROM jobs_job AS job
         WHERE job.lane = waiting.lane
           AND {{in_lane job}} AND {{of_pool job}}
         ORDER BY job.lane DESC, job.priority DESC LIMIT 1) AS priority
  FROM waiting
 WHERE lane IS NOT NULL
