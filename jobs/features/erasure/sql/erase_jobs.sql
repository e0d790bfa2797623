-- Erase all that a user gave or got from jobs that have ended, and delete their log; the rows can still be counted.
--
-- params  ids; project: the jobs' project; user: the pseudonym that the rows have from now on
-- order   by id
-- locks   the jobs and their dead letters
-- clock   none
-- returns for each job its id, how many events were deleted, and whether it had a dead letter
WITH candidate AS MATERIALIZED (
    SELECT id FROM jobs_job
     WHERE id = ANY(%(ids)s::uuid[]) AND project_id = %(project)s::text AND finished_at IS NOT NULL
     ORDER BY id
       FOR UPDATE
), logged AS (
    DELETE FROM jobs_jobevent WHERE job_id = ANY(ARRAY(SELECT id FROM candidate)) RETURNING job_id
), letters AS (
    UPDATE jobs_deadletter
       SET payload = '{}', payload_text = NULL, error_message = '', remediation = '', attempts = '[]', note = '', resolved_by = '',
           timeline = '{"events": [], "logged": 0}'
     WHERE job_id = ANY(ARRAY(SELECT id FROM candidate))
    RETURNING job_id
), tags AS (
    DELETE FROM jobs_tag WHERE owner_id = ANY(ARRAY(SELECT id FROM candidate))
), erased AS (
    UPDATE jobs_job AS job
       SET user_id = %(user)s::uuid, payload = '{}', payload_text = NULL, result = NULL, result_text = NULL, progress_message = '', last_error_message = '',
           takes = NULL, idempotency_key = NULL, unique_key = NULL,
           effect_key = 'erased:' || job.id, coalesce_key = NULL, lane = NULL, target = '',
           path = 0
      FROM candidate
     WHERE job.id = candidate.id
    RETURNING job.id
)
SELECT id, (SELECT count(*) FROM logged WHERE job_id = erased.id), EXISTS (SELECT FROM letters WHERE job_id = erased.id)
  FROM erased
 ORDER BY id
