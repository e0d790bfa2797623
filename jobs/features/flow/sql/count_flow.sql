-- Sum up a part of the job log by service: in spans of ten seconds, of five minutes, and since the first count.
--
-- params  after, upto: the ids of the part, which the caller has taken with advance_flow.sql;
--         duration_ms, size_bytes: lower bounds of the bins counted below;
--         most_services: services counted by name (all others are added to the service `other`)
-- locks   the rows added to, in the order of their keys; the caller holds the cursor's row already
-- clock   none: an event's own time says in which spans it counts
-- returns one row: how many events were looked at
WITH event AS MATERIALIZED (
    -- The events that are counted, with the figures in their data.
    SELECT date_bin('10 seconds', created_at, 'epoch') AS at, coalesce(service, '') AS service, event_type,
           CASE WHEN event_type <> 'state_change' THEN event_type
                WHEN to_status <> 'retried' OR data ? 'retry_count' THEN to_status END AS what,
           (data ? 'crash_count')::int AS crashes,
           (data -> 'duration_ms')::float8 AS duration, (data -> 'waited_ms')::float8 AS waited,
           data -> 'calls' AS calls,
           CASE WHEN event_type = 'scheduling' THEN data ->> 'binding_limit'
                WHEN data ->> 'error_code' = 'limit_rejected' THEN '' END AS limit_name
      FROM jobs_jobevent
     WHERE id > %(after)s::bigint AND id <= %(upto)s::bigint
       AND (event_type = 'state_change'
                AND (to_status IN ('completed', 'failed', 'cancelled', 'retried', 'rate_limited')
                     OR to_status = 'queued' AND from_status IS NULL)
            OR event_type = 'scheduling' AND data ? 'binding_limit'
            OR event_type = 'error' AND data ->> 'operation' = 'lease_lost')
), known AS MATERIALIZED (
    -- The services that have sums.
    SELECT service FROM jobs_flowsample WHERE span_seconds = 0
), named AS MATERIALIZED (
    -- The name under which each service of these events is counted.
    -- A service may be a host that a producer named: without a bound, producers could add rows without end.
    SELECT service,
           {{name_of_service}} AS name
      FROM (SELECT DISTINCT service FROM event) AS seen LEFT JOIN known USING (service)
), counted AS (
    -- The number of events and answers of each sort. `answer`: the class of the answer's status, as in bins.py.
    SELECT at, service, what, crashes, NULL::int AS answer, NULL::int AS size_bin, NULL::bigint AS bytes,
           width_bucket(duration, %(duration_ms)s::float8[]) AS latency_bin,
           width_bucket(waited, %(duration_ms)s::float8[]) AS delay_bin,
           count(*) AS n, sum(duration) AS duration, sum(waited) AS waited
      FROM event
     WHERE event_type <> 'scheduling'
     GROUP BY at, service, what, crashes, latency_bin, delay_bin
    UNION ALL
    SELECT at, service, NULL, 0, answer, width_bucket(bytes::float8, %(size_bytes)s::float8[]), sum(bytes),
           NULL, NULL, count(*), NULL, NULL
      FROM event
     CROSS JOIN LATERAL jsonb_array_elements(calls) AS call
     CROSS JOIN LATERAL (
           SELECT (call -> 1)::bigint AS bytes,
                  CASE WHEN status BETWEEN 200 AND 299 THEN 1 WHEN status BETWEEN 300 AND 399 THEN 2
                       WHEN status = 429 THEN 4 WHEN status = 400 THEN 7 WHEN status = 401 THEN 8
                       WHEN status = 403 THEN 9 WHEN status = 404 THEN 10 WHEN status BETWEEN 400 AND 499 THEN 3
                       WHEN status >= 500 THEN 5 ELSE 6 END AS answer
             FROM (SELECT coalesce(call ->> 0, '0')::int AS status) AS given) AS answered
     WHERE calls IS NOT NULL
     GROUP BY at, service, answer, 6
), summed AS MATERIALIZED (
    -- The sums of each span and service.
    SELECT span_seconds, CASE span_seconds WHEN 0 THEN timestamptz 'epoch' WHEN 10 THEN at
                              ELSE date_bin('5 minutes', at, 'epoch') END AS began,
           named.name,
           coalesce(sum(n) FILTER (WHERE what = 'queued'), 0) AS submitted,
           coalesce(sum(n) FILTER (WHERE what = 'completed'), 0) AS completed,
           coalesce(sum(n) FILTER (WHERE what = 'failed'), 0) AS failed,
           coalesce(sum(n) FILTER (WHERE what = 'retried'), 0) AS retried,
           coalesce(sum(n) FILTER (WHERE what = 'rate_limited'), 0) AS deferred,
           coalesce(sum(n) FILTER (WHERE what = 'cancelled'), 0) AS cancelled,
           coalesce(sum(n * crashes), 0) AS crashed,
           coalesce(sum(n) FILTER (WHERE what = 'error'), 0) AS leases_lost,
           {{count_answers}} AS answers,
           {{count_sizes}} AS sizes,
           coalesce(sum(bytes), 0) AS size_bytes,
           {{count_latencies}} AS latencies,
           coalesce(sum(duration), 0) AS latency_ms,
           {{count_delays}} AS delays,
           coalesce(sum(waited), 0) AS delay_ms
      FROM counted JOIN named USING (service) CROSS JOIN (VALUES (0), (10), (300)) AS span (span_seconds)
     GROUP BY 1, 2, 3
), kept AS (
    -- Insert the sums, or add them to the rows that exist.
    INSERT INTO jobs_flowsample AS kept
           (span_seconds, at, service, submitted, completed, failed, retried, deferred, cancelled, crashed, leases_lost,
            answers, sizes, size_bytes, latencies, latency_ms, delays, delay_ms)
    SELECT * FROM summed ORDER BY 1, 2, 3
    ON CONFLICT (span_seconds, at, service) DO UPDATE
       SET {{add_flow}}
), decided AS (
    -- Calls that a limit deferred or rejected are counted by limit, too.
    INSERT INTO jobs_decisiontotal AS total (decision, service, call_type, model, limit_name, calls)
    SELECT CASE event_type WHEN 'scheduling' THEN 'deferred' ELSE 'rejected' END, name, '', '', limit_name, count(*)
      FROM event JOIN named USING (service)
     WHERE limit_name IS NOT NULL
     GROUP BY 1, 2, limit_name
     ORDER BY 1, 2, limit_name
    ON CONFLICT (decision, service, call_type, model, limit_name) DO UPDATE SET calls = total.calls + excluded.calls
)
SELECT count(*)::int FROM event
