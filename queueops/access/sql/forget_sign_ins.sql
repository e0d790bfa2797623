-- Delete counts that are over, so that a guesser of names cannot fill the table.
--
-- params  most: rows of one call
-- locks   the deleted rows; skips those that somebody is counting on
-- clock   the server's
-- returns one row for each deleted
DELETE FROM access_signincount
 WHERE id IN (SELECT id FROM access_signincount
               WHERE forget_at <= clock_timestamp()
               ORDER BY forget_at LIMIT %(most)s
                 FOR UPDATE SKIP LOCKED)
RETURNING id
