-- Find claims that lost their lease because their executor was judged dead.
--
-- params  ids, tokens, crashes (the job's crash_count when it was claimed): parallel arrays, one entry a claim
-- locks   none
-- clock   none
-- returns id, token
SELECT given.id, given.token
  FROM unnest(%(ids)s::uuid[], %(tokens)s::bigint[], %(crashes)s::int[]) AS given (id, token, crashes)
  JOIN jobs_job AS job ON job.id = given.id
       -- A rescue from a dead executor raises crash_count, or logs the token of a claim lost with its host; a
       -- cancellation or reset does neither. Crashes that the executor itself counted, for a held loop, are left out.
 WHERE job.crash_count > greatest(given.crashes, (
           SELECT max((event.data ->> 'crash_count')::int) FROM jobs_jobevent AS event
            WHERE event.job_id = given.id
              AND event.data @> jsonb_build_object('operation', 'loop_held', 'fencing_token', given.token)
       )) OR EXISTS (
           SELECT FROM jobs_jobevent AS event
            WHERE event.job_id = given.id AND event.data @> jsonb_build_object('lost_with_host', given.token)
       )
