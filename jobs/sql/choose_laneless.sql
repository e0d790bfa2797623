-- Choose and lock ready jobs of a service that are in no lane.
--
-- params  service; most: how many jobs to choose at most
-- locks   the chosen rows, SKIP LOCKED
-- clock   none
-- returns the ids, and the columns from which the jobs' lanes are named
SELECT id, call_type, model, project_id, user_id, target, credential, kind FROM jobs_job
 WHERE service = %(service)s::text AND lane IS NULL AND {{ready}}
 LIMIT %(most)s::int
   FOR UPDATE SKIP LOCKED
