-- Start claimed jobs.
--
-- params  ids
-- locks   the rows
-- clock   now(): the transaction's start
-- returns nothing
WITH moved AS (
    UPDATE jobs_job
       SET status = 'in_progress', started_at = now(), first_attempt_at = coalesce(first_attempt_at, now()),
           updated_at = now()
     WHERE id = ANY(%(ids)s::uuid[])
    RETURNING id, project_id, user_id, batch_id, service
)
INSERT INTO jobs_jobevent (job_id, project_id, user_id, batch_id, service, event_type, from_status, to_status)
SELECT id, project_id, user_id, batch_id, service, 'state_change', 'dispatched', 'in_progress' FROM moved
