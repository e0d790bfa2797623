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
                  AND {{in_lane}}
               OFFSET given.depth LIMIT 1)
