-- Choose jobs that ended before a time and that nothing needs any more, to be archived.
--
-- params  before; without: projects to leave out; most: the most jobs to choose
-- order   when they ended
-- locks   none
-- clock   none
-- returns id, project, and the day (UTC) on which it ended
SELECT job.id, job.project_id, (job.finished_at AT TIME ZONE 'UTC')::date
  FROM jobs_job AS job
 WHERE job.finished_at < %(before)s::timestamptz
   AND job.project_id <> ALL(%(without)s::text[])
   AND {{nothing_needs job}}
 ORDER BY job.finished_at
 LIMIT %(most)s::int
