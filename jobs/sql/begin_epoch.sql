-- Begin a new epoch, and pause everything: the database was put back to an earlier moment.
--
-- Tokens go on far behind those that the lost time may have given: a call that still runs from then proves nothing here.
--
-- params  since: only where no epoch has begun after this moment, so that of all who notice the same one acts; reason,
--         actor: of the pause, in place of those of an earlier one
-- locks   the epoch's row, then the switch
-- clock   clock_timestamp(), now() of the switch
-- returns the new epoch, and what the tokens have reached; no row: somebody has begun one
WITH begun AS (
    UPDATE jobs_epoch
       SET value = left(replace(gen_random_uuid()::text, '-', ''), 16),
           began_at = greatest({{clock_now}}, began_at + interval '1 microsecond')
     WHERE began_at <= %(since)s::timestamptz
    RETURNING value
), paused AS (
    INSERT INTO jobs_pauseswitch (scope, key, reason, paused_by)
    SELECT 'global', '', %(reason)s, %(actor)s FROM begun
        ON CONFLICT (scope, key, pool, window_id)
        DO UPDATE SET reason = excluded.reason, paused_by = excluded.paused_by, created_at = {{now}}
)
SELECT value, setval('jobs_fencing_token', nextval('jobs_fencing_token') + 1000000000) FROM begun
