-- Begin anew the time that held jobs of an unserved kind wait for a worker, where something else keeps them, too: no
-- worker could have carried them out meanwhile.
--
-- params  kind;
--         pool: of the jobs (null: any);
--         code: of their last error (null: any);
--         older: seconds since the last change of a job's row;
--         most: rows in one statement
-- locks   the changed rows, in id order
-- clock   now(): the transaction's start
-- returns the ids
WITH jobs_pauseswitch AS (  -- held_otherwise reads these rows: in the table itself it would find that no worker is there
    SELECT * FROM jobs_pauseswitch WHERE scope NOT IN ('unknown', 'unfit')
), kept AS MATERIALIZED (
    SELECT job.id FROM jobs_job AS job
     WHERE job.held AND job.status IN {{waiting}} AND job.kind = %(kind)s::text
       AND (%(pool)s::text IS NULL OR coalesce(job.pool, '') = %(pool)s::text)
       AND (%(code)s::text IS NULL OR job.last_error_code = %(code)s::text)
       AND job.updated_at < {{now}} - %(older)s::float8 * interval '1 second'
       AND ({{held_otherwise job}} OR EXISTS (SELECT FROM jobs_pauseswitch WHERE {{stands_still job}}))
     ORDER BY job.id
     LIMIT %(most)s::int
       FOR UPDATE OF job
)
UPDATE jobs_job AS job SET updated_at = {{now}} FROM kept WHERE job.id = kept.id
RETURNING job.id
