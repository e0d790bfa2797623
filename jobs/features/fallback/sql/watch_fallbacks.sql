-- Store the conditions under which waiting jobs go another way.
--
-- params  project: the jobs' project;
--         ids: jobs, parallel to the next two;
--         afters: seconds from eligible until a job that waits for a limit goes another way (null: never);
--         on_outages: whether an outage sends the job another way
-- locks   the rows, which the caller has just inserted or locked
-- clock   none
-- returns the ids
UPDATE jobs_job AS job
   SET fallback_at = greatest(job.eligible_since, job.created_at) + given.after * interval '1 second',
       fallback_on_outage = given.on_outage
  FROM unnest(%(ids)s::uuid[], %(afters)s::float8[], %(on_outages)s::boolean[]) AS given (id, after, on_outage)
 WHERE job.id = given.id AND job.project_id = %(project)s::text
RETURNING job.id
