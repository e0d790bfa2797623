-- Find the first of the given held jobs that only their stopped calls hold: release_held_jobs would let it go to try.
--
-- params  ids; stop: the name of the refused calls that have stopped
-- locks   none
-- clock   none
-- returns the id; no row: something else holds each of the jobs
WITH jobs_refusedcalls AS (  -- held_otherwise reads these rows: in the table itself it would find the stop
    SELECT * FROM jobs_refusedcalls WHERE name <> %(stop)s::text
)
SELECT job.id FROM jobs_job AS job
 WHERE job.id = ANY(%(ids)s::uuid[]) AND job.held AND job.status IN {{waiting}}
   AND NOT {{held_otherwise job}}
   AND NOT EXISTS (SELECT FROM jobs_dependency WHERE owner_id = job.id)
   AND NOT EXISTS (SELECT FROM jobs_dependency WHERE owner_id = job.batch_id)
 ORDER BY job.id
 LIMIT 1
