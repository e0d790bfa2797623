-- Delete one chunk of batches that ended before a time and have no job left, with their counts and tags.
--
-- params  before; most: how many batches in one statement
-- locks   the deleted rows, SKIP LOCKED
-- clock   none
-- returns the ids deleted. A batch stays while a job of it remains, a feature keeps it or a job depends on it
WITH candidate AS MATERIALIZED (
    SELECT batch.id
      FROM jobs_batch AS batch
     WHERE batch.finished_at < %(before)s::timestamptz
       AND {{nothing_in batch}}
     ORDER BY batch.finished_at
     LIMIT %(most)s::int
       FOR UPDATE OF batch SKIP LOCKED
), {{delete_batches}}
