-- Store with waiting jobs which values they take from the results of other jobs.
--
-- params  project: of the jobs; ids; takes: JSON text for each id, in the same order
-- locks   the rows, which the caller has just inserted
-- clock   none
-- returns the ids
UPDATE jobs_job AS job
   SET takes = given.told::jsonb
  FROM unnest(%(ids)s::uuid[], %(takes)s::text[]) AS given (id, told)
 WHERE job.id = given.id AND job.project_id = %(project)s::text
RETURNING job.id
