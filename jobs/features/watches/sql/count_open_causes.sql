-- Count a bounded number of open dead letters by cause and project.
--
-- params  most: letters read
-- locks   none
-- clock   none
-- returns fingerprint, project, and how many
SELECT fingerprint, project_id, count(*)::int
  FROM (SELECT fingerprint, project_id FROM jobs_deadletter WHERE resolution IS NULL LIMIT %(most)s::int) AS part
 GROUP BY fingerprint, project_id
