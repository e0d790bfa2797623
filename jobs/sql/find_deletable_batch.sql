-- Find the earliest end of a batch that nothing needs any more, if that end is before a time.
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
