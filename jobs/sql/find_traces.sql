-- Find which jobs were submitted within a sampled trace.
--
-- params  ids: the jobs; projects: their projects; since: when the first of these was submitted, or earlier, so that
--         older parts of the log are not read
-- locks   none
-- clock   none
-- returns the id and traceparent of each such job; the index used holds only events with a traceparent
SELECT job_id, data ->> 'traceparent'
  FROM jobs_jobevent
 WHERE job_id = ANY(%(ids)s::uuid[]) AND project_id = ANY(%(projects)s::text[])
   AND data ? 'traceparent' AND created_at >= %(since)s::timestamptz
