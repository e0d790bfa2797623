-- Find the earliest end of a job that nothing needs any more, if that end is before a time.
--
-- params  before
-- locks   none
-- clock   none
-- returns the time; no row: there is no such job
SELECT job.finished_at
  FROM jobs_job AS job
 WHERE job.finished_at < %(before)s::timestamptz
   AND {{nothing_needs job}}
 ORDER BY job.finished_at
 LIMIT 1
