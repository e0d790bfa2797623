-- Read counters and the time, without locks.
--
-- params  ids: the ids of counters, which may or may not exist
-- locks   none
-- clock   clock_timestamp()
-- returns one row for each counter that exists; if none exists, a single row with only the time
SELECT extract(epoch FROM {{clock_now}})::float8 AS now, counter.id, counter.state::text,
       extract(epoch FROM counter.blocked_until)::float8, counter.blocked_reason, counter.pressure,
       extract(epoch FROM counter.pressure_changed_at)::float8
  FROM (SELECT) AS once
  LEFT JOIN ratelimits_counter AS counter ON counter.id = ANY(%(ids)s::text[])
