-- List lanes that have work waiting, and since when in each tier. The caller finds those that share a limit.
--
-- A loose scan of the lanes' index: one probe a lane and three for its tiers, however many jobs the lane has.
--
-- params  from_lane: the first lane to list, in the order of the index; most: lanes to list
-- locks   none
-- clock   none
-- returns for each lane: its name, and the oldest eligible_since of its urgent, normal and low jobs (null: none)
WITH RECURSIVE waiting AS (
    (SELECT lane, 1 AS number FROM jobs_job
      WHERE lane >= %(from_lane)s::text
        AND {{in_lane}}
      ORDER BY lane LIMIT 1)
    UNION ALL
    SELECT (SELECT job.lane FROM jobs_job AS job
             WHERE job.lane > waiting.lane
               AND {{in_lane job}}
             ORDER BY job.lane LIMIT 1), number + 1
      FROM waiting
     WHERE lane IS NOT NULL AND number < %(most)s::int
)
SELECT waiting.lane, urgent.since, normal.since, low.since
  FROM waiting
 CROSS JOIN LATERAL (SELECT min(eligible_since) AS since FROM jobs_job AS job
                      WHERE job.lane = waiting.lane AND job.priority = 'urgent'
                        AND {{in_lane job}}) AS urgent
 CROSS JOIN LATERAL (SELECT min(eligible_since) AS since FROM jobs_job AS job
                      WHERE job.lane = waiting.lane AND job.priority = 'normal'
                        AND {{in_lane job}}) AS normal
 CROSS JOIN LATERAL (SELECT min(eligible_since) AS since FROM jobs_job AS job
                      WHERE job.lane = waiting.lane AND job.priority = 'low'
                        AND {{in_lane job}}) AS low
 WHERE waiting.lane IS NOT NULL
