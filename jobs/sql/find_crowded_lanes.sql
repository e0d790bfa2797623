-- Find the lanes in which more than so many jobs wait.
--
-- params  lanes, depths: parallel arrays
-- locks   none
-- clock   none
-- returns the lanes' names
SELECT given.lane
  FROM unnest(%(lanes)s::text[], %(depths)s::int[]) AS given (lane, depth)
 WHERE EXISTS (SELECT FROM jobs_job
                WHERE lane = given.lane
                  AND (status = 'rate_limited' OR (scheduled_at IS NULL AND status = 'queued'))
                  AND crash_count < 2 AND NOT held AND lane IS NOT NULL
               OFFSET given.depth LIMIT 1)
