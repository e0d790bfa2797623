-- Tell whether jobs are under way, and whether any duty that one executor does for all has something to do.
--
-- An idle installation runs this query alone, instead of one query for each duty. Duties that this query leaves out are
-- done all the same, only seldom: see SELDOM_DUTY_SECONDS in jobs/executor/duties.py.
--
-- params  logs, sequences: parallel arrays: logs that are summed up, and the sequences of their ids;
--         passes: how often a sweep goes over all jobs, after which all jobs are in their pools
-- locks   none
-- clock   now(): the transaction's start
-- returns one row: whether a job runs, is ready, or waits for a limit or for the end of an outage, and whether a duty
--         has something to do. A job that waits for a time alone, or is held, is not under way
SELECT EXISTS (SELECT FROM jobs_job WHERE status IN {{running}})
    OR EXISTS (SELECT FROM jobs_job WHERE status = 'queued' AND scheduled_at IS NULL AND held = false)
    OR EXISTS (SELECT FROM jobs_job WHERE status = 'rate_limited' AND held = false) AS is_under_way,
       EXISTS (SELECT FROM jobs_job WHERE expires_at <= {{now}} AND status IN {{waiting}})
    OR EXISTS (SELECT FROM jobs_batch WHERE finished_at IS NULL)
    OR EXISTS (SELECT FROM jobs_poolsweep WHERE passes < %(passes)s::int)
    OR {{due_of_features}}
    OR EXISTS (SELECT FROM jobs_flowcursor AS flow
                 JOIN unnest(%(logs)s::text[], %(sequences)s::text[]) AS given (log, sequence) USING (log)
                WHERE flow.counted < flow.mark OR pg_sequence_last_value(sequence::regclass) > flow.mark)
    OR EXISTS (SELECT FROM ratelimits_charge WHERE expires_at < {{now}})
    OR EXISTS (SELECT FROM ratelimits_budgethold WHERE expires_at < {{now}} AND NOT lost)
    OR EXISTS (SELECT FROM ratelimits_resumeramp
                WHERE started_at IS NULL OR held_share IS NOT NULL
                   OR started_at + over_seconds * interval '1 second' > {{now}}) AS is_due
