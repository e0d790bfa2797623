-- Read the events of jobs, in the form that jobs/features/recovery/event_fold.py takes.
--
-- params  ids: the jobs' ids; projects: the jobs' projects;
--         since: no event of the jobs is older, so that older parts of the log are not read
-- order   by job, then by id: each event is written under its job's lock
-- locks   none
-- clock   none
-- returns a row for each event: its data only if event_fold.py uses them, its message only if it reports progress
SELECT job_id, event_type, from_status, to_status, progress_percent, created_at,
       CASE WHEN event_type = 'progress' THEN message ELSE '' END AS message,
       CASE WHEN data ?| ARRAY['has_part', 'scheduled_at', 'retry_count', 'crash_count', 'deferral_count', 'error_code',
                              'fallback_step']
            THEN data - ARRAY['traceback', 'log', 'calls'] END AS facts
  FROM jobs_jobevent
 WHERE job_id = ANY(%(ids)s::uuid[]) AND project_id = ANY(%(projects)s::text[]) AND created_at >= %(since)s::timestamptz
 ORDER BY job_id, id
