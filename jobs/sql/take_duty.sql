-- Take or renew the lease on a periodic duty.
--
-- params  duty, holder; term: seconds
-- locks   the duty's row
-- clock   now(): the transaction's start
-- returns one row if `holder` has the duty, none if another executor has it
INSERT INTO jobs_dutylease AS lease (duty, holder, expires_at)
VALUES (%(duty)s, %(holder)s::uuid, {{now}} + %(term)s::float8 * interval '1 second')
ON CONFLICT (duty) DO UPDATE SET holder = excluded.holder, expires_at = excluded.expires_at
 WHERE lease.holder = excluded.holder OR lease.expires_at < {{now}}
RETURNING duty
