-- Read all that the archive keeps of each job.
--
-- params  ids; project: the jobs' project
-- order   by id
-- locks   none
-- clock   none
-- returns the id as text, and a JSON document: each column of the job, its dead letter or null, its tags
SELECT job.id::text,
       jsonb_build_object(
           'job', to_jsonb(job),
           'dead_letter', (SELECT to_jsonb(letter) FROM jobs_deadletter AS letter WHERE letter.job_id = job.id),
           'tags', (SELECT coalesce(jsonb_agg(to_jsonb(tag) ORDER BY tag.name), '[]')
                      FROM jobs_tag AS tag WHERE tag.owner_id = job.id))::text
  FROM jobs_job AS job
 WHERE job.id = ANY(%(ids)s::uuid[]) AND job.project_id = %(project)s::text
 ORDER BY job.id
