-- Look at the next jobs by id, and put unfinished ones into the pools that the rules name now.
--
-- params  after: the last id looked at before; most: jobs to look at
-- locks   the changed rows, in id order; waits
-- clock   none
-- returns one row: the last id looked at (null: there are no more), and how many jobs were moved
WITH looked AS MATERIALIZED (
    SELECT id FROM jobs_job WHERE id > %(after)s::uuid ORDER BY id LIMIT %(most)s::int
), wrong AS MATERIALIZED (
    SELECT job.id, {{pool_of job}} AS pool
      FROM looked JOIN jobs_job AS job USING (id)
     WHERE job.status IN {{unfinished}} AND job.pool IS DISTINCT FROM {{pool_of job}}
     ORDER BY job.id
       FOR UPDATE OF job
), moved AS (
    UPDATE jobs_job AS job SET pool = wrong.pool
      FROM wrong
     WHERE job.id = wrong.id AND job.status IN {{unfinished}}
    RETURNING job.id
)
SELECT (SELECT id FROM looked ORDER BY id DESC LIMIT 1) AS last, (SELECT count(*) FROM moved)::int AS moved
