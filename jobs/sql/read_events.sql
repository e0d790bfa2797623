-- Read the events that became visible since an earlier read, oldest first.
--
-- Tracebacks and handlers' log lines are left out: sockets push events to everybody who watches.
--
-- params  after: every such event has a greater id; seen: what was visible then (pg_snapshot as text), or null: nothing;
--         until: what is asked for (pg_snapshot as text), or null: all that is visible now; most: rows at once
-- order   by id. One statement, so that a job's events, which commit in the order of their ids, never come out of it
-- locks   none
-- clock   none
-- returns what is visible now, its oldest unfinished transaction, and one event a row; one row without an event if none
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
