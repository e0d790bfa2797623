-- Sum up the costs, durations and outcomes of a kind's jobs that were submitted since a time.
--
-- params  kind;
--         first: the lowest id that a job submitted at that time may have
-- locks   none
-- clock   none
-- returns one row: how many jobs; when the first of them was submitted; how many were completed, have failed, wait and
--         run; how often they were retried. Then the cost of completed jobs, and the 50 and 95 % quantiles of the
--         seconds that jobs waited before their first attempt, not counting time before they were due. Last, the same
--         quantiles for the seconds that the last attempts of ended jobs took
SELECT count(*) AS jobs, min(created_at) AS since,
       count(*) FILTER (WHERE status = 'completed') AS completed,
       count(*) FILTER (WHERE status = 'failed') AS failed,
       count(*) FILTER (WHERE status IN {{waiting}}) AS waiting,
       count(*) FILTER (WHERE status IN {{running}}) AS running,
       coalesce(sum(retry_count), 0)::bigint AS retries,
       coalesce(sum(cost) FILTER (WHERE status = 'completed'), 0)::bigint AS cost,
       percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY greatest(0, date_part('epoch',
           first_attempt_at - eligible_since))) FILTER (WHERE first_attempt_at IS NOT NULL) AS waited,
       percentile_cont(ARRAY[0.5, 0.95]) WITHIN GROUP (ORDER BY date_part('epoch', finished_at - started_at))
           FILTER (WHERE status IN {{ended}} AND started_at IS NOT NULL) AS ran
  FROM jobs_job
 WHERE id >= %(first)s::uuid AND kind = %(kind)s
