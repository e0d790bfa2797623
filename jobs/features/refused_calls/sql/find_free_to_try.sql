-- Find the first of the given held jobs that only their stopped calls hold, by the rules of release_held_jobs.
--
-- params  ids, projects: parallel arrays; stop: the name of the refused calls that have stopped
-- locks   none
-- clock   none
-- returns the id; no row: something else holds each of the jobs
WITH jobs_refusedcalls AS (  -- stands in for the table, in which held_otherwise would find the stop
    SELECT * FROM jobs_refusedcalls WHERE name <> %(stop)s::text
)
SELECT job.id
  FROM unnest(%(ids)s::uuid[], %(projects)s::text[]) AS given (id, project_id)
  JOIN jobs_job AS job USING (id, project_id)
 WHERE job.held AND job.status IN {{waiting}}
   AND NOT {{held_otherwise job}}
   AND NOT EXISTS (SELECT FROM jobs_dependency WHERE owner_id = job.id)
   AND NOT EXISTS (SELECT FROM jobs_dependency WHERE owner_id = job.batch_id)
 ORDER BY job.id
 LIMIT 1
