-- Delete charges and return them, so that nobody else can settle the returned charges.
--
-- params  holders: whose calls have ended; expired: the most charges of other holders, not settled in time, to take
-- locks   the taken rows; expired ones SKIP LOCKED
-- clock   now(): the transaction's start
-- returns holder and entries (JSON text)
WITH expired AS MATERIALIZED (
    SELECT holder FROM ratelimits_charge
     WHERE expires_at < {{now}} AND %(expired)s::int > 0
     ORDER BY expires_at
     LIMIT %(expired)s::int
       FOR UPDATE SKIP LOCKED
)
DELETE FROM ratelimits_charge
 WHERE holder = ANY(%(holders)s::text[]) OR holder = ANY(ARRAY(SELECT holder FROM expired))
RETURNING holder, entries::text
