-- Let go of the executors of an installation that is gone: leases end now, rows count as silent, duties are free.
--
-- Their rows stay until upkeep has rescued their jobs: they tell that the host went, and no job pays with a crash.
--
-- params  every: let go of all executors, else of those without a sign of life since the server's start, or for long;
--         silent: seconds after which one counts as gone;
--         aged: seconds by which their last sign is put back
-- locks   the executors' rows, their running jobs in id order, the duties
-- clock   now()
-- returns executors let go, leases ended, and executors that live
WITH gone AS (
    UPDATE jobs_executor
       SET heartbeat_at = {{now}} - %(aged)s * interval '1 second'
     WHERE %(every)s
        OR heartbeat_at < greatest(pg_postmaster_start_time(), {{now}} - %(silent)s * interval '1 second')
    RETURNING id
), running AS MATERIALIZED (
    SELECT id FROM jobs_job
     WHERE lease_expires_at > {{now}}
       AND (executor IN (SELECT id FROM gone) OR NOT EXISTS (SELECT FROM jobs_executor WHERE id = jobs_job.executor))
       -- Jobs in a provider's batch need no executor: the next holder of the duty goes on with them.
       AND NOT EXISTS (SELECT FROM jobs_providerbatch WHERE id = jobs_job.executor)
     ORDER BY id
       FOR UPDATE
), ended AS (
    UPDATE jobs_job SET lease_expires_at = {{now}}
     WHERE id IN (SELECT id FROM running)
    RETURNING id
), freed AS (
    -- The archive's duty stays when it is over: it says that there is an archive, without which nothing old is deleted.
    DELETE FROM jobs_dutylease
     WHERE duty <> 'archive'
       AND NOT EXISTS (SELECT FROM jobs_executor WHERE id = holder AND id NOT IN (SELECT id FROM gone))
)
SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM ended),
       (SELECT count(*) FROM jobs_executor) - (SELECT count(*) FROM gone)
