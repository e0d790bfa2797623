-- Read the events that became visible since an earlier read, oldest first.
--
-- Tracebacks and handlers' log lines are left out: sockets push events to everybody who watches.
--
-- params  after: read only events with a greater id;
--         seen: the snapshot of the earlier read, pg_snapshot as text (null: no event was visible to it);
--         until: read only events visible in this snapshot, pg_snapshot as text (null: all that are visible now);
--         most: how many events at once
-- order   by id, in one statement: a job's events commit in the order of their ids, and are returned in that order
-- locks   none
-- clock   none
-- returns a row for each event: the present snapshot, its oldest unfinished transaction, and the event; without events,
--         one row with nulls in the event's place
WITH moment AS MATERIALIZED (
    SELECT pg_current_snapshot() AS snapshot
)
SELECT moment.snapshot::text, pg_snapshot_xmin(moment.snapshot)::text::bigint, event.*
  FROM moment
  LEFT JOIN LATERAL (
       SELECT id, job_id::text, project_id, user_id::text, batch_id::text, event_type, from_status, to_status, message,
              progress_percent, created_at, service,
              (CASE WHEN data ?| ARRAY['traceback', 'log'] THEN data - 'traceback' - 'log' ELSE data END)::text AS data
         FROM jobs_jobevent
        WHERE id > %(after)s::bigint
          AND (%(seen)s::pg_snapshot IS NULL OR NOT pg_visible_in_snapshot(xid, %(seen)s::pg_snapshot))
          AND (%(until)s::pg_snapshot IS NULL OR pg_visible_in_snapshot(xid, %(until)s::pg_snapshot))
        ORDER BY id
        LIMIT %(most)s::int) AS event ON true
