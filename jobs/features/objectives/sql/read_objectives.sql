-- Sum up objectives over windows that end now. Windows of up to an hour are exact to ten seconds; longer windows begin
-- at a whole hour.
--
-- params  ids, windows (seconds): parallel arrays, an objective and a window each; at: the windows' end (the
--         span of ten seconds that holds it is left out)
-- locks   none
-- clock   none
-- returns for each objective and window: both, how many jobs were due, and how many of them met the objective
WITH asked AS (
    SELECT id, seconds, date_bin('10 seconds', %(at)s::timestamptz, 'epoch') AS upto,
           date_bin(CASE WHEN seconds > 3600 THEN interval '1 hour' ELSE interval '10 seconds' END,
                    %(at)s::timestamptz - seconds * interval '1 second', 'epoch') AS since,
           CASE WHEN seconds > 3600 THEN date_bin('1 hour', %(at)s::timestamptz, 'epoch') END AS hour
      FROM unnest(%(ids)s::bigint[], %(windows)s::int[]) AS given (id, seconds)
)
SELECT asked.id, asked.seconds, coalesce(sum(due), 0)::bigint AS due, coalesce(sum(met), 0)::bigint AS met
  FROM asked
  LEFT JOIN jobs_objectivesample AS sample
         ON sample.objective_id = asked.id
        AND (sample.span_seconds = 10 AND sample.at >= coalesce(hour, since) AND sample.at < upto
             OR sample.span_seconds = 3600 AND sample.at >= since AND sample.at < hour)
 GROUP BY 1, 2
