-- Count the jobs that wait in lanes, up to `most` in each.
--
-- params  lanes;
--         most: how many jobs to count in a lane;
--         sampled: how many jobs of a lane to read for the means
-- locks   none
-- clock   none
-- returns for each lane: its name, jobs waiting (`most` where there are more), and the mean cost of a sampled call.
--         Then the mean calls of a sampled job: below 1 where jobs leave together, above 1 where they take several.
--         Last, when the oldest waiting job began to wait (seconds since 1970), among the first jobs of the tiers that
--         no limit has deferred, or null
--
-- The conditions and order of each subquery repeat those of jobs_job_in_lane_idx, word by word. Otherwise the planner
-- would read the table from its start, where finished jobs are, until it has found enough jobs of a long lane.
SELECT given.lane,
       (SELECT count(*)
          FROM (SELECT 1 FROM jobs_job AS job
                 WHERE job.lane = given.lane
                   AND {{in_lane job}}
                 ORDER BY job.priority, job.eligible_since LIMIT %(most)s::int) AS counted) AS waiting,
       sample.cost, sample.calls, head.since
  FROM unnest(%(lanes)s::text[]) AS given (lane)
 CROSS JOIN LATERAL (
       -- A job of several calls has the cost and input of its largest call; `input_of_calls` is the input of all.
       SELECT coalesce(sum(calls * (cost - CASE WHEN costs ? 'input_of_calls'
                                                THEN (costs ->> 'input_tokens')::float8
                                                     - (costs ->> 'input_of_calls')::float8 / (costs ->> 'calls')::float8
                                                ELSE 0 END)) / sum(calls), 1)::float8 AS cost,
              (coalesce(sum(calls) FILTER (WHERE coalesce_key IS NULL), 0) + count(DISTINCT coalesce_key))::float8
                  / greatest(count(*), 1) AS calls
         FROM (SELECT cost, coalesce_key, costs,
                      greatest(1, coalesce((costs ->> 'calls')::float8, 1) * (1 - progress / 100.0)) AS calls
                 FROM jobs_job AS job
                WHERE job.lane = given.lane
                  AND {{in_lane job}}
                ORDER BY job.priority, job.eligible_since LIMIT %(sampled)s::int) AS looked_at
 ) AS sample
 CROSS JOIN LATERAL (
       SELECT extract(epoch FROM min(first.eligible_since))::float8 AS since
         FROM (VALUES ('urgent'), ('normal'), ('low')) AS tier (priority)
        CROSS JOIN LATERAL (
              SELECT job.eligible_since, job.status, job.deferral_count FROM jobs_job AS job
               WHERE job.lane = given.lane AND job.priority = tier.priority
                 AND {{in_lane job}}
               ORDER BY job.eligible_since LIMIT 1) AS first
        WHERE first.status = 'queued' AND first.deferral_count = 0
 ) AS head
