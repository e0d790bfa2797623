-- Read the first waiting jobs of a batch, a state, that stand in lanes, in the order in which lanes release them.
--
-- params  batch; states: each of which is read; most: jobs a state; tiers: from the first to the last
-- locks   nothing
-- clock   none
-- returns lane and the values of LineJob of each, costs as JSON text; and how many jobs were read, those outside lanes
--         included
WITH read AS (
    SELECT job.*
      FROM unnest(%(states)s::text[]) AS of (state)
     CROSS JOIN LATERAL (
           -- A range and an order make the planner walk the index: for `batch_id = x` it would read the whole batch.
           SELECT * FROM jobs_job
            WHERE batch_id >= %(batch)s AND batch_id <= %(batch)s AND status = of.state
            ORDER BY batch_id
            LIMIT %(most)s) AS job
)
SELECT lane, kind, coalesce_key, coalesce(pg_column_size(payload_text), pg_column_size(payload)), cost, known_cost,
       costs::text, model, project_id, service, progress, (SELECT count(*) FROM read)
  FROM read
 WHERE lane IS NOT NULL
 ORDER BY array_position(%(tiers)s::text[], priority::text), eligible_since, id
