-- Find which jobs were submitted within a trace that somebody samples.
--
-- params  ids: of the jobs; projects: theirs; since: none of them was submitted earlier, so that older parts of the
--         log are not looked at
-- locks   none
-- clock   none
-- returns the id and traceparent of each that was; by an index that holds no others
SELECT job_id, data ->> 'traceparent'
  FROM jobs_jobevent
 WHERE job_id = ANY(%(ids)s::uuid[]) AND project_id = ANY(%(projects)s::text[])
   AND data ? 'traceparent' AND created_at >= %(since)s::timestamptz
