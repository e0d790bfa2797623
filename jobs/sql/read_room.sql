-- Read how many unfinished jobs a project may have, and how many it has by the counts that the transitions keep. Read
-- also whether it takes no jobs because it is moving to another installation.
--
-- params  project
-- locks   none
-- clock   none
-- returns limit, unfinished, move and moved_to of the project, and whether its payloads are encrypted
SELECT project.max_waiting_jobs,
       (SELECT {{sum_unfinished}}::bigint
          FROM jobs_jobcount
         WHERE project_id = project.id AND batch_id = '00000000-0000-0000-0000-000000000000'),
       project.move, project.moved_to, project.encrypted
  FROM tenancy_project AS project
 WHERE project.id = %(project)s::text
