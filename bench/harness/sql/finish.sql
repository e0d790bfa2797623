-- Complete started jobs that are still this worker's.
--
-- params  ids; result: the result of each job, as JSON text, or null
-- locks   the rows
-- clock   now(): the transaction's start
-- returns nothing
WITH moved AS (
    UPDATE jobs_job
       SET status = 'completed', finished_at = now(), lease_expires_at = NULL, progress = 100, updated_at = now(),
           result_text = %(result)s::text
     WHERE id = ANY(%(ids)s::uuid[]) AND status = 'in_progress' AND fencing_token = 1
    RETURNING id, project_id, user_id, batch_id, service
)
INSERT INTO jobs_jobevent (job_id, project_id, user_id, batch_id, service, event_type, from_status, to_status)
SELECT id, project_id, user_id, batch_id, service, 'state_change', 'in_progress', 'completed' FROM moved
