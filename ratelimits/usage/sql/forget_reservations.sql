-- Delete reservations that were made too long ago and are not active.
--
-- params  days: how long ago they were made at least; most: how many reservations at once
-- order   by id, a UUIDv7: its first 48 bits are the milliseconds since 1970
-- locks   the reservations, SKIP LOCKED: not those that somebody is ending
-- clock   statement_timestamp()
-- returns their ids
DELETE FROM ratelimits_usagereservation
 WHERE id IN (
       SELECT id
         FROM ratelimits_usagereservation
        WHERE id < (lpad(to_hex((extract(epoch FROM {{statement_now}} - %(days)s * interval '1 day') * 1000)::bigint),
                         12, '0') || repeat('0', 20))::uuid
          AND status <> 'active'
        ORDER BY id
        LIMIT %(most)s
          FOR UPDATE SKIP LOCKED)
RETURNING id
