-- Lock counters, and read what they hold and the time once all of them are locked.
--
-- params  ids: the counters' ids, in any order, each once
-- locks   the counters, in the order of their ids, as every transaction does
-- clock   clock_timestamp(), read for each row after it was locked: the latest one is after all locks
-- returns one row for each counter; no row at all if a counter is missing
WITH locked AS MATERIALIZED (
    SELECT id, state::text AS state, extract(epoch FROM blocked_until)::float8 AS blocked_until, blocked_reason,
           pressure, extract(epoch FROM pressure_changed_at)::float8 AS pressure_changed_at, alert_level
      FROM ratelimits_counter
     WHERE id = ANY(%(ids)s::text[])
       -- If a counter is missing, none is locked: adding it while others are locked would break the order.
       AND (SELECT count(*) FROM ratelimits_counter WHERE id = ANY(%(ids)s::text[])) = cardinality(%(ids)s::text[])
     ORDER BY id COLLATE "C"  -- as Python sorts, whatever the database collates by
       FOR UPDATE
)
SELECT locked.*, extract(epoch FROM {{clock_now}})::float8 AS now FROM locked
