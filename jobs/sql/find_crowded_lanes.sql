-- Find the lanes in which more jobs wait than the lane's share of a limit's window admits.
--
-- params  lanes, depths, amounts: parallel arrays;
--         depths: how many jobs each lane's share admits (null: no limit counts calls);
--         amounts: how many tokens each share admits (null: no limit counts tokens), which the statement divides by the
--         mean cost of the lane's first jobs;
--         sampled: how many first jobs are read for this mean
-- locks   none
-- clock   none
-- returns the lanes' names
SELECT given.lane
  FROM unnest(%(lanes)s::text[], %(depths)s::int[], %(amounts)s::float8[]) AS given (lane, depth, amount)
 CROSS JOIN LATERAL (
       SELECT least(given.depth,
                    CASE WHEN given.amount IS NOT NULL THEN (
                         SELECT least(given.amount / greatest(avg(cost), 1), 2e9)::int
                           FROM (SELECT cost FROM jobs_job
                                  WHERE lane = given.lane
                                    AND {{in_lane}}
                                  ORDER BY priority, eligible_since LIMIT %(sampled)s::int) AS first)
                    END) AS jobs) AS window_of
 WHERE EXISTS (SELECT FROM jobs_job
                WHERE lane = given.lane
                  AND {{in_lane}}
               OFFSET window_of.jobs LIMIT 1)
