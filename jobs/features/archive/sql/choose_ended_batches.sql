-- Choose batches that ended before a time and have no job left, to be archived.
--
-- params  before; without: projects to leave out; most: the most batches to choose
-- order   when they ended
-- locks   none
-- clock   none
-- returns id, project, and the day (UTC) on which it ended
SELECT batch.id, batch.project_id, (batch.finished_at AT TIME ZONE 'UTC')::date
  FROM jobs_batch AS batch
 WHERE batch.finished_at < %(before)s::timestamptz
   AND batch.project_id <> ALL(%(without)s::text[])
   AND {{nothing_in batch}}
 ORDER BY batch.finished_at
 LIMIT %(most)s::int
