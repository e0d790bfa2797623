-- Add the counters that are missing and lock all of them.
--
-- params  ids, limits, keys: parallel arrays, in the order of the ids
-- locks   the counters, in the order given: the update that changes nothing locks a conflicting row
-- clock   statement_timestamp(), by the column's default
-- returns nothing that matters
INSERT INTO ratelimits_counter (id, limit_id, key, state)
SELECT id, limit_id, key, '{}'::jsonb
  FROM unnest(%(ids)s::text[], %(limits)s::bigint[], %(keys)s::text[]) WITH ORDINALITY AS given (id, limit_id, key, place)
 ORDER BY place
    ON CONFLICT (id) DO UPDATE SET key = excluded.key WHERE false
RETURNING id
