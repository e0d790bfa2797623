-- Read the flow of all services or one, in points of equal length.
--
-- params  span_seconds: length of the samples to read; step_seconds: length of a point, a multiple of span_seconds;
--         origin: a moment at which some point begins; since: the start of the time to read;
--         before: its end, exclusive; service: read this service alone, null: all
-- locks   none
-- clock   none
-- returns a row for each point that has a sample, in order; the backlog is the last that was sampled in the point
SELECT date_bin(%(step_seconds)s::float8 * interval '1 second', at, %(origin)s::timestamptz) AS began,
       sum(submitted)::bigint, sum(completed)::bigint, sum(failed)::bigint, sum(retried)::bigint,
       sum(deferred)::bigint, sum(cancelled)::bigint, sum(crashed)::bigint, sum(leases_lost)::bigint,
       ARRAY[sum(answers[1]), sum(answers[2]), sum(answers[3]), sum(answers[4]), sum(answers[5]),
             sum(answers[6]), sum(answers[7]), sum(answers[8]), sum(answers[9]), sum(answers[10])]::bigint[],
       ARRAY[sum(sizes[1]), sum(sizes[2]), sum(sizes[3]), sum(sizes[4]), sum(sizes[5]), sum(sizes[6]),
             sum(sizes[7]), sum(sizes[8]), sum(sizes[9])]::bigint[],
       sum(size_bytes)::bigint,
       ARRAY[sum(latencies[1]), sum(latencies[2]), sum(latencies[3]), sum(latencies[4]), sum(latencies[5]),
             sum(latencies[6]), sum(latencies[7]), sum(latencies[8]), sum(latencies[9]), sum(latencies[10]),
             sum(latencies[11]), sum(latencies[12]), sum(latencies[13]), sum(latencies[14]), sum(latencies[15]),
             sum(latencies[16])]::bigint[],
       sum(latency_ms)::float8,
       ARRAY[sum(delays[1]), sum(delays[2]), sum(delays[3]), sum(delays[4]), sum(delays[5]),
             sum(delays[6]), sum(delays[7]), sum(delays[8]), sum(delays[9]), sum(delays[10]), sum(delays[11]),
             sum(delays[12]), sum(delays[13]), sum(delays[14]), sum(delays[15]), sum(delays[16])]::bigint[],
       sum(delay_ms)::float8,
       (array_agg(to_jsonb(backlog) ORDER BY at DESC) FILTER (WHERE backlog IS NOT NULL))[1]
  FROM jobs_flowsample
 WHERE span_seconds = %(span_seconds)s::int AND at >= %(since)s::timestamptz AND at < %(before)s::timestamptz
   AND (%(service)s::text IS NULL OR service = %(service)s::text)
 GROUP BY 1
 ORDER BY 1
