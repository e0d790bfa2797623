-- List lanes that have jobs to release, from one name on, by a probe of the index a lane.
--
-- params  after: the last lane of the list before; most: lanes
-- locks   none
-- clock   none
-- returns lane, and the most urgent priority that waits in it
WITH RECURSIVE waiting AS (
    (SELECT lane, 1 AS nth FROM jobs_job
      WHERE (status = 'rate_limited' OR (scheduled_at IS NULL AND status = 'queued'))
        AND crash_count < 2 AND NOT held AND lane IS NOT NULL AND lane > %(after)s::text
      ORDER BY lane LIMIT 1)
    UNION ALL
    SELECT (SELECT job.lane FROM jobs_job AS job
             WHERE (job.status = 'rate_limited' OR (job.scheduled_at IS NULL AND job.status = 'queued'))
               AND job.crash_count < 2 AND NOT job.held AND job.lane IS NOT NULL AND job.lane > waiting.lane
             ORDER BY job.lane LIMIT 1), waiting.nth + 1
      FROM waiting
     WHERE waiting.lane IS NOT NULL AND waiting.nth < %(most)s::int
)
SELECT lane,
       (SELECT priority FROM jobs_job AS job
         WHERE job.lane = waiting.lane
           AND (job.status = 'rate_limited' OR (job.scheduled_at IS NULL AND job.status = 'queued'))
           AND job.crash_count < 2 AND NOT job.held AND job.lane IS NOT NULL
         ORDER BY job.lane DESC, job.priority DESC LIMIT 1) AS priority
  FROM waiting
 WHERE lane IS NOT NULL
