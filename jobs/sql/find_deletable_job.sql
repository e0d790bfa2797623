-- Find when the oldest job ended that ended before a time and that nothing needs any more.
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
