-- Tell whether there is work under way: a job that runs, is ready, or waits for a limit or for an outage to end.
--
-- params  none
-- locks   none
-- clock   none
-- returns one row: whether there is. A job that waits for a time alone, or is held, is not under way
SELECT EXISTS (SELECT FROM jobs_job WHERE status IN {{running}})
    OR EXISTS (SELECT FROM jobs_job WHERE status = 'queued' AND scheduled_at IS NULL AND held = false)
    OR EXISTS (SELECT FROM jobs_job WHERE status = 'rate_limited' AND held = false) AS is_under_way
