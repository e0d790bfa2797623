-- Count one attempt to sign in before it is checked, unless its account or address is locked.
--
-- params  purpose, account, address: what is counted; limit: how many attempts are checked before the lock;
--         window_seconds: for how long failures count, and how long a lock lasts
-- locks   the count's row, until the caller commits: parallel guesses are counted one after the other
-- clock   clock_timestamp(), of the moment the row is locked
-- returns the number of the attempt; no row: locked, and nothing changed (further attempts do not prolong a lock)
INSERT INTO access_signincount AS known (purpose, account, address, failures, forget_at)
VALUES (%(purpose)s, %(account)s, %(address)s, 1, {{clock_now}} + make_interval(secs => %(window_seconds)s))
ON CONFLICT (purpose, account, address) DO UPDATE
   SET failures = CASE WHEN known.forget_at <= {{clock_now}} THEN 1 ELSE known.failures + 1 END,
       forget_at = CASE WHEN known.forget_at <= {{clock_now}} OR known.failures + 1 >= %(limit)s
                        THEN excluded.forget_at ELSE known.forget_at END
 WHERE known.failures < %(limit)s OR known.forget_at <= {{clock_now}}
RETURNING failures
