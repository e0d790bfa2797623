-- Read the first waiting jobs of each state of a batch that are in lanes, in the order in which lanes release them.
--
-- params  batch; states: the states to read; most: jobs a state; tiers: in the order in which lanes release them
-- locks   nothing
-- clock   none
-- returns for each job that is in a lane: how many jobs were read, in lanes or not; the job's lane; and the values of
--         LineJob, costs as JSON text. If no job is in a lane, one row with that number and nulls
WITH read AS (
    SELECT job.*
      FROM unnest(%(states)s::text[]) AS of (state)
     CROSS JOIN LATERAL (
           -- A range and an order make the planner walk the index: for `batch_id = x` it would read the whole batch.
           -- List the columns: `SELECT *` would copy whole rows with their payloads.
           SELECT lane, priority, eligible_since, id, kind, coalesce_key,
                  coalesce(pg_column_size(payload_text), pg_column_size(payload)) AS size, cost, known_cost,
                  costs::text AS costs, model, project_id, service, progress
             FROM jobs_job
            WHERE batch_id >= %(batch)s AND batch_id <= %(batch)s AND status = of.state
            ORDER BY batch_id
            LIMIT %(most)s) AS job
)
SELECT total.jobs, lane, kind, coalesce_key, size, cost, known_cost, costs, model, project_id, service, progress
  FROM (SELECT count(*) AS jobs FROM read) AS total LEFT JOIN read ON lane IS NOT NULL
 ORDER BY array_position(%(tiers)s::text[], priority::text), eligible_since, id
