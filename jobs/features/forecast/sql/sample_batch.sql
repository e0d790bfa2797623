-- Read the first waiting jobs of a batch, a state, that stand in lanes, in the order in which lanes release them.
--
-- params  batch; states: each of which is read; most: jobs a state; tiers: from the first to the last
-- locks   nothing
-- clock   none
-- returns how many jobs were read, those outside lanes included; beside each that stands in a lane that lane and the
--         values of LineJob, costs as JSON text. One row with nulls where none stands in a lane
WITH read AS (
    SELECT job.*
      FROM unnest(%(states)s::text[]) AS of (state)
     CROSS JOIN LATERAL (
           -- A range and an order make the planner walk the index: for `batch_id = x` it would read the whole batch.
           -- Named columns: whole rows, with their payloads, would be copied.
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
