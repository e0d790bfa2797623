-- Begin a new epoch, and pause everything: the database was put back to an earlier moment.
--
-- New fencing tokens begin far above all tokens that may have been drawn in the lost time. Otherwise calls that still
-- run from then could write here.
--
-- params  since: begin an epoch only if none began after this moment, so that only one of several processes acts;
--         reason, actor: written into the pause of everything, over the reason and actor of an earlier such pause
-- locks   the epoch's row, then the switch
-- clock   clock_timestamp() for the epoch, now() for the switch
-- returns the new epoch, and the token that the sequence goes on from; no row: somebody else has begun an epoch
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
