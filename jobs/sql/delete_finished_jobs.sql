-- Delete one chunk of jobs that ended before a time, with their tags, resolved dead letters and webhook deliveries.
--
-- params  before; most: how many jobs in one statement
-- locks   the deleted rows, SKIP LOCKED
-- clock   none
-- returns the ids deleted. A job stays while its dead letter is open, while its requeue remains, or while a dependency
--         on the job, its batch or the job that it repeats remains. A job that somebody restored from the archive stays
--         while that person keeps it
WITH candidate AS MATERIALIZED (
    SELECT job.id
      FROM jobs_job AS job
     WHERE job.finished_at < %(before)s::timestamptz
       AND {{nothing_needs job}}
     ORDER BY job.finished_at
     LIMIT %(most)s::int
       FOR UPDATE OF job SKIP LOCKED
), {{delete_jobs}}
