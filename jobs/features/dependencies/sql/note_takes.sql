-- Keep with waiting jobs what they take from the results of others.
--
-- params  project: of the jobs; ids; takes: JSON, parallel
-- locks   the rows, which the caller has just inserted
-- clock   none
-- returns the ids
UPDATE jobs_job AS job
   SET takes = given.told::jsonb
  FROM unnest(%(ids)s::uuid[], %(takes)s::text[]) AS given (id, told)
 WHERE job.id = given.id AND job.project_id = %(project)s::text
RETURNING job.id
