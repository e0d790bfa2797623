-- Delete jobs that are in the archive, with their tags, resolved dead letters and webhook deliveries.
--
-- params  ids: of ended jobs; project: the jobs' project
-- locks   the deleted rows, in id order
-- clock   none
-- returns the ids deleted. If something has come to need a job since it was archived, the job stays and is archived
--         again later
WITH candidate AS MATERIALIZED (
    SELECT job.id
      FROM jobs_job AS job
     WHERE job.id = ANY(%(ids)s::uuid[])
       AND job.project_id = %(project)s::text
       AND job.finished_at IS NOT NULL
       AND {{nothing_needs job}}
     ORDER BY job.id
       FOR UPDATE OF job
), {{delete_jobs}}
