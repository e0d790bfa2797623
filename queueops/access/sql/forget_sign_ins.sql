-- Delete expired counts, so that a guesser of names cannot fill the table.
--
-- params  most: how many counts one call may delete
-- locks   the deleted rows, SKIP LOCKED: counts that a sign-in is changing are passed over
-- clock   clock_timestamp()
-- returns one row for each deleted count
DELETE FROM access_signincount
 WHERE id IN (SELECT id FROM access_signincount
               WHERE forget_at <= {{clock_now}}
               ORDER BY forget_at LIMIT %(most)s
                 FOR UPDATE SKIP LOCKED)
RETURNING id
