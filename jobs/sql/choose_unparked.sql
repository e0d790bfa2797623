-- Choose and lock queued jobs to park: the oldest of each tier, in lanes where more jobs wait than will leave soon.
--
-- params  lanes: names;
--         services, call_types, projects, users: parts of each lane's name (a null user: jobs without a user), which
--         are also the first columns of the index that finds the lane's jobs;
--         soon: how many jobs of each lane are expected to leave soon, parallel to the other arrays;
--         most: how many jobs to choose at most, and how many to read in each tier of a lane
-- locks   the chosen rows, SKIP LOCKED
-- clock   none
-- returns id, lane, priority, eligible_since, kind, cost, known_cost and costs (JSON text), in no order across lanes
WITH crowded AS MATERIALIZED (
    SELECT * FROM unnest(%(lanes)s::text[], %(services)s::text[], %(call_types)s::text[], %(projects)s::text[],
                         %(users)s::uuid[], %(soon)s::int[]) AS given (lane, service, call_type, project, user_id, soon)
     WHERE EXISTS (SELECT FROM jobs_job
                    WHERE lane = given.lane
                      AND {{in_lane}}
                   OFFSET given.soon LIMIT 1)
)
SELECT job.id, crowded.lane, job.priority, job.eligible_since, job.kind, job.cost, job.known_cost,
       job.costs::text
  FROM crowded
 CROSS JOIN (VALUES ('urgent'), ('normal'), ('low')) AS tier (name)
 CROSS JOIN LATERAL (
       (SELECT id FROM jobs_job
         WHERE service = crowded.service AND call_type = crowded.call_type AND project_id = crowded.project
           AND user_id = crowded.user_id
           AND {{ready}} AND lane = crowded.lane
           AND priority = tier.name
         ORDER BY eligible_since, id
         LIMIT %(most)s::int)
       UNION ALL
       (SELECT id FROM jobs_job
         WHERE crowded.user_id IS NULL
           AND service = crowded.service AND call_type = crowded.call_type AND project_id = crowded.project
           AND user_id IS NULL
           AND {{ready}} AND lane = crowded.lane
           AND priority = tier.name
         ORDER BY eligible_since, id
         LIMIT %(most)s::int)) AS found
 CROSS JOIN LATERAL (
       SELECT id, priority, eligible_since, kind, cost, known_cost, costs FROM jobs_job
        WHERE id = found.id AND {{ready}} AND crash_count < 2
          FOR UPDATE SKIP LOCKED) AS job
 LIMIT %(most)s::int
