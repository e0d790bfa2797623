-- Log, on each job that a dead worker was running, that the worker died.
--
-- params  executor; suspect: the id of the suspected job, or null; of_suspect, of_others: the events' messages;
--         carried: how many jobs the worker was running
-- locks   none
-- clock   none
-- returns the ids of the jobs logged
INSERT INTO jobs_jobevent (job_id, project_id, user_id, batch_id, service, event_type, message, data)
SELECT id, project_id, user_id, batch_id, service, 'error',
       CASE WHEN id = %(suspect)s::uuid THEN %(of_suspect)s ELSE %(of_others)s END,
       jsonb_build_object('operation', 'worker_died', 'carried', %(carried)s::int, 'suspect', id = %(suspect)s::uuid,
                          'fencing_token', fencing_token)
  FROM jobs_job
 WHERE executor = %(executor)s AND status IN {{running}}
RETURNING job_id
