-- Log why jobs were deferred: the state of their limits, and when room is expected. The caller has just moved the jobs.
--
-- params  ids, data (JSON text): parallel arrays; message: the same for all
-- locks   none
-- clock   now(), by the log's default: the transaction's start
-- returns the ids
INSERT INTO jobs_jobevent (job_id, project_id, user_id, batch_id, service, event_type, message, data)
SELECT job.id, job.project_id, job.user_id, job.batch_id, job.service, 'scheduling', %(message)s::text,
       given.data::jsonb || jsonb_build_object('scheduled_at', job.scheduled_at)
  FROM unnest(%(ids)s::uuid[], %(data)s::text[]) AS given (id, data)
  JOIN jobs_job AS job ON job.id = given.id
RETURNING job_id
