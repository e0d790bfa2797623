-- Put back held jobs that no pause switch or guard covers any more and that wait for no money and no other job, a bounded number
-- a statement, in id order.
--
-- params  after: the last id the statement before looked at; most: rows looked at in one statement
-- locks   the released rows, in id order
-- clock   now(): the transaction's start
-- returns one row: how many were released, and the last id looked at (null: none was left)
WITH looked_at AS MATERIALIZED (
    SELECT id FROM jobs_job
     WHERE held AND id > %(after)s::uuid
     ORDER BY id
     LIMIT %(most)s::int
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
