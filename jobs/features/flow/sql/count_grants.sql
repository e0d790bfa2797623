-- Sum up a part of the limiter's tallies: how many calls it has granted since the first count, by service and model.
--
-- params  after, upto: the ids of the part, which the caller has taken with advance_flow.sql
-- locks   the rows added to, in the order of their keys; whoever counts holds the cursor's row already
-- clock   none
-- returns one row: how many tallies were added
WITH tally AS MATERIALIZED (
    SELECT service, call_type, model, sum(calls) AS calls, count(*) AS n
      FROM ratelimits_calltally
     WHERE id > %(after)s::bigint AND id <= %(upto)s::bigint
     GROUP BY service, call_type, model
), added AS (
    INSERT INTO jobs_decisiontotal AS total (decision, service, call_type, model, limit_name, calls)
    SELECT 'granted', service, call_type, model, '', calls FROM tally ORDER BY service, call_type, model
    ON CONFLICT (decision, service, call_type, model, limit_name) DO UPDATE SET calls = total.calls + excluded.calls
)
SELECT coalesce(sum(n), 0)::int FROM tally
