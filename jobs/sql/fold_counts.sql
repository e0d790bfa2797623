-- Add the counters of backends that have ended to shard 0: otherwise each new connection would add rows for ever.
--
-- params  none
-- locks   the rows of ended backends, which nobody writes; a new backend with the same pid waits, then inserts new rows
-- clock   none
-- returns one row: how many rows were folded
WITH gone AS (
    DELETE FROM jobs_jobcount
     WHERE shard <> 0 AND shard NOT IN (SELECT pid FROM pg_stat_activity)
    RETURNING *
), folded AS (
    INSERT INTO jobs_jobcount AS total
           (project_id, batch_id, shard, {{counts}})
    SELECT project_id, batch_id, 0, {{sum_counts}}
      FROM gone
     GROUP BY project_id, batch_id
     ORDER BY project_id, batch_id
    {{add_counts}}
)
SELECT count(*) FROM gone
