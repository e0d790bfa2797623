-- Store what calls hold until they are settled.
--
-- params  holders, entries (JSON text), holds (seconds until a charge is reclaimed): parallel arrays
-- locks   none but those of the unique key
-- clock   now(): the transaction's start
-- returns nothing that matters
INSERT INTO ratelimits_charge (holder, entries, granted_at, expires_at)
SELECT holder, entries::jsonb, {{now}}, {{now}} + hold * interval '1 second'
  FROM unnest(%(holders)s::text[], %(entries)s::text[], %(holds)s::float8[]) AS given (holder, entries, hold)
    ON CONFLICT (holder) DO NOTHING
RETURNING holder
