-- Take the next part of a log that nothing can be added to any more, and keep the horizon for the part after it.
--
-- An id is drawn before its transaction commits, so a log's newest ids appear out of order. One call marks an id that
-- has been drawn. A later call reads the horizon: a transaction id above those of all transactions that drew this id or
-- a lower one. Once every transaction below the horizon has ended, all ids up to the mark are there or never will be.
--
-- params  log: the log's name;
--         sequence: what its ids are drawn from;
--         most: ids in a part;
--         settle: seconds from drawing an id until the horizon is read, far longer than a transaction needs for its id
-- locks   the cursor, SKIP LOCKED: one caller counts at a time, and the next caller goes on where it ended
-- clock   clock_timestamp()
-- returns one row, or none when another caller counts. The part's ids lie above the first figure, and up to the second;
--         the third says whether all up to the mark is counted now
WITH held AS MATERIALIZED (
    SELECT log, counted, mark, marked_at, horizon, pg_sequence_last_value(%(sequence)s::text::regclass) AS drawn,
           -- A horizon above all transaction ids comes from another server, by a dump.
           horizon > pg_snapshot_xmax(pg_current_snapshot())::text::bigint AS is_foreign,
           horizon <= pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS is_final
      FROM jobs_flowcursor
     WHERE log = %(log)s::text
       FOR UPDATE SKIP LOCKED
), part AS MATERIALIZED (
    SELECT held.*, CASE WHEN is_final THEN least(mark, counted + %(most)s::bigint) ELSE counted END AS upto
      FROM held
), moved AS (
    UPDATE jobs_flowcursor AS flow
       SET counted = part.upto,
           mark = CASE WHEN part.upto = part.mark THEN greatest(part.mark, part.drawn) ELSE part.mark END,
           marked_at = CASE WHEN part.upto = part.mark THEN {{clock_now}} ELSE part.marked_at END,
           horizon = CASE
               WHEN part.upto = part.mark OR part.is_foreign THEN NULL
               WHEN part.horizon IS NULL
                    AND {{clock_now}} >= part.marked_at + %(settle)s::float8 * interval '1 second'
               THEN pg_snapshot_xmax(pg_current_snapshot())::text::bigint
               ELSE part.horizon END
      FROM part
     WHERE flow.log = part.log AND (part.counted < part.mark OR part.drawn > part.mark)
)
SELECT counted, upto, upto = mark FROM part
