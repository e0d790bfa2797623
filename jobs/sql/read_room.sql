-- Read how many unfinished jobs a project may have and has, from the counts that the transitions keep.
--
-- params  project
-- locks   none
-- clock   none
-- returns limit, unfinished
SELECT project.max_waiting_jobs,
       (SELECT {{sum_unfinished}}::bigint
          FROM jobs_jobcount
         WHERE project_id = project.id AND batch_id = '00000000-0000-0000-0000-000000000000')
  FROM tenancy_project AS project
 WHERE project.id = %(project)s::text
