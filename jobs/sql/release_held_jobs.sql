-- Release held jobs that nothing holds any more: no pause switch, no batch guard, no budget and no dependency.
-- Each statement reads a bounded number of held jobs, in id order.
--
-- params  after: the last id that the previous statement read; most: rows read in one statement;
--         batch: release only this batch's jobs (null: all jobs, in a batch or not)
-- locks   the released rows, in id order
-- clock   now(): the transaction's start
-- returns one row: how many were released, and the last id read (null: no held job was left)
WITH looked_at AS MATERIALIZED (
    (SELECT id FROM jobs_job
      WHERE held AND id > %(after)s::uuid AND %(batch)s::uuid IS NULL
      ORDER BY id
      LIMIT %(most)s::int)
    UNION ALL
    (SELECT id
       -- OFFSET 0 hides the limit from the planner, which would otherwise read the held jobs of all batches.
       FROM (SELECT id, held FROM jobs_job
              WHERE batch_id = %(batch)s::uuid AND status IN ('queued', 'rate_limited', 'retried') OFFSET 0) AS own
      WHERE held AND id > %(after)s::uuid
      ORDER BY id
      LIMIT %(most)s::int)
), candidate AS MATERIALIZED (
    SELECT id FROM jobs_job AS job
     WHERE id = ANY(ARRAY(SELECT id FROM looked_at)) AND held
       AND NOT {{held_otherwise job}}
       -- LIMIT 1 makes the planner look up each job in the index; for a join, it may read all dependencies.
       AND (SELECT true FROM jobs_dependency WHERE owner_id = job.id LIMIT 1) IS NULL
       AND (SELECT true FROM jobs_dependency WHERE owner_id = job.batch_id LIMIT 1) IS NULL
     ORDER BY id
       FOR UPDATE OF job
), moved AS (
    UPDATE jobs_job SET held = false, updated_at = {{now}}
     WHERE id = ANY(ARRAY(SELECT id FROM candidate))
    RETURNING id
)
SELECT (SELECT count(*) FROM moved)::int AS released, (SELECT id FROM looked_at ORDER BY id DESC LIMIT 1) AS last
