-- Note how many jobs are in each state now, and how many dead letters are open.
--
-- params  most_letters: how many dead letters to count at most
-- locks   the rows of the two spans
-- clock   now(): the transaction's start
-- returns nothing that matters
INSERT INTO jobs_flowsample AS kept (span_seconds, at, service, answers, sizes, latencies, delays, backlog)
SELECT span.seconds, date_bin(span.seconds * interval '1 second', {{now}}, 'epoch'), '', '{}', '{}', '{}', '{}',
       ARRAY[{{backlog}}]
  FROM (SELECT {{sum_counts}}
          FROM jobs_jobcount
         WHERE batch_id = '00000000-0000-0000-0000-000000000000') AS sums
 CROSS JOIN (SELECT count(*) AS open
               FROM (SELECT FROM jobs_deadletter WHERE resolution IS NULL LIMIT %(most_letters)s::int) AS letter) AS letters
 CROSS JOIN (VALUES (10), (300)) AS span (seconds)
 ORDER BY span.seconds
ON CONFLICT (span_seconds, at, service) DO UPDATE SET backlog = excluded.backlog
RETURNING 1
