-- Delete one chunk of jobs that ended before a time, with their tags, resolved dead letters and webhook deliveries.
--
-- params  before; most: bound of one statement
-- locks   the deleted rows, SKIP LOCKED
-- clock   none
-- returns the ids deleted. A job stays while its dead letter is open, or while a job that began as its requeue remains
WITH candidate AS MATERIALIZED (
    SELECT job.id
      FROM jobs_job AS job
     WHERE job.finished_at < %(before)s::timestamptz
       AND NOT EXISTS (SELECT FROM jobs_deadletter AS letter WHERE letter.job_id = job.id AND letter.resolution IS NULL)
       AND NOT EXISTS (SELECT FROM jobs_job AS later WHERE later.origin_id = job.id)
     ORDER BY job.finished_at
     LIMIT %(most)s::int
       FOR UPDATE OF job SKIP LOCKED
), letters AS (
    DELETE FROM jobs_deadletter WHERE job_id = ANY(ARRAY(SELECT id FROM candidate))
), forgotten AS (
    UPDATE jobs_deadletter SET requeued_as_id = NULL WHERE requeued_as_id = ANY(ARRAY(SELECT id FROM candidate))
), tags AS (
    DELETE FROM jobs_tag WHERE owner_id = ANY(ARRAY(SELECT id FROM candidate))
), deliveries AS (
    DELETE FROM jobs_webhookdelivery WHERE job_id = ANY(ARRAY(SELECT id FROM candidate))
)
DELETE FROM jobs_job WHERE id = ANY(ARRAY(SELECT id FROM candidate)) RETURNING id
