-- Let go of the executors of a dead installation: end their leases, set their heartbeats back, free their duties.
--
-- The executors' rows stay until upkeep has rescued their jobs. These rows show that the whole host died, so no job
-- counts a crash.
--
-- params  every: let go of all executors, not only of executors without a heartbeat since the server's start, or for
--         `silent` seconds;
--         silent: seconds without a heartbeat after which an executor counts as dead;
--         aged: how many seconds before now their last heartbeat is set to
-- locks   the executors' rows, their running jobs in id order, the duties
-- clock   now()
-- returns how many executors were let go, how many leases were ended, and how many executors live on
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
    -- The archive's duty stays even when its lease is over: the row says that there is an archive, and that nothing old
    -- may be deleted without it.
    DELETE FROM jobs_dutylease
     WHERE duty <> 'archive'
       AND NOT EXISTS (SELECT FROM jobs_executor WHERE id = holder AND id NOT IN (SELECT id FROM gone))
)
SELECT (SELECT count(*) FROM gone), (SELECT count(*) FROM ended),
       (SELECT count(*) FROM jobs_executor) - (SELECT count(*) FROM gone)
