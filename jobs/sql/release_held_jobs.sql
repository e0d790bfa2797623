-- Put back held jobs that nothing holds any more: no pause switch, no guard, no budget and no other job.
-- A bounded number a statement, in id order.
--
-- params  after: the last id the statement before looked at; most: rows looked at in one statement;
--         batch: only its jobs (null: of every batch and of none)
-- locks   the released rows, in id order
-- clock   now(): the transaction's start
-- returns one row: how many were released, and the last id looked at (null: none was left)
WITH looked_at AS MATERIALIZED (
    (SELECT id FROM jobs_job
      WHERE held AND id > %(after)s::uuid AND %(batch)s::uuid IS NULL
      ORDER BY id
      LIMIT %(most)s::int)
    UNION ALL
    (SELECT id
       -- OFFSET 0: a planner that sees the limit walks the held jobs of everybody.
       FROM (SELECT id, held FROM jobs_job
              WHERE batch_id = %(batch)s::uuid AND status IN ('queued', 'rate_limited', 'retried') OFFSET 0) AS own
      WHERE held AND id > %(after)s::uuid
      ORDER BY id
      LIMIT %(most)s::int)
), candidate AS MATERIALIZED (
    SELECT id FROM jobs_job AS job
     WHERE id = ANY(ARRAY(SELECT id FROM looked_at)) AND held
       AND NOT {{held_otherwise job}}
       AND NOT EXISTS (SELECT FROM jobs_dependency WHERE owner_id = job.id)
       AND NOT EXISTS (SELECT FROM jobs_dependency WHERE owner_id = job.batch_id)
     ORDER BY id
       FOR UPDATE OF job
), moved AS (
    UPDATE jobs_job AS job SET held = false, updated_at = {{now}}
      FROM candidate
     WHERE job.id = candidate.id
    RETURNING job.id
)
SELECT (SELECT count(*) FROM moved)::int AS released, (SELECT id FROM looked_at ORDER BY id DESC LIMIT 1) AS last
