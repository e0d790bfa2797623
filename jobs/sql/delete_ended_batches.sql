-- Delete one chunk of batches that ended before a time and have no job left, with their counts and tags.
--
-- params  before; most: bound of one statement
-- locks   the deleted rows, SKIP LOCKED
-- clock   none
-- returns the ids deleted. A batch stays while a job or a message about it remains
WITH candidate AS MATERIALIZED (
    SELECT batch.id
      FROM jobs_batch AS batch
     WHERE batch.finished_at < %(before)s::timestamptz
       AND NOT EXISTS (SELECT FROM jobs_job AS job WHERE job.batch_id = batch.id)
       AND NOT EXISTS (SELECT FROM jobs_webhookdelivery AS delivery WHERE delivery.batch_id = batch.id)
     ORDER BY batch.finished_at
     LIMIT %(most)s::int
       FOR UPDATE OF batch SKIP LOCKED
), counts AS (
    DELETE FROM jobs_jobcount WHERE batch_id = ANY(ARRAY(SELECT id FROM candidate))
), tags AS (
    DELETE FROM jobs_tag WHERE owner_id = ANY(ARRAY(SELECT id FROM candidate))
), pauses AS (
    DELETE FROM jobs_pauseswitch WHERE scope = 'batch' AND key = ANY(ARRAY(SELECT id::text FROM candidate))
)
DELETE FROM jobs_batch WHERE id = ANY(ARRAY(SELECT id FROM candidate)) RETURNING id
