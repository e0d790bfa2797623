-- Find when the oldest batch ended that ended before a time and that nothing needs any more.
--
-- params  before
-- locks   none
-- clock   none
-- returns the time; no row: there is no such batch
SELECT batch.finished_at
  FROM jobs_batch AS batch
 WHERE batch.finished_at < %(before)s::timestamptz
   AND {{nothing_in batch}}
 ORDER BY batch.finished_at
 LIMIT 1
