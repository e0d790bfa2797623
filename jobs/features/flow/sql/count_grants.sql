-- Sum up a part of the limiter's tallies: how many calls it has granted since the first count, by service and model.
--
-- params  after, upto: the ids of the part, which the caller has taken with advance_flow.sql;
--         most_services: services counted by name, besides those of limits (all others are the service `other`);
--         most_models: services and models counted by name (calls of further models count without a model)
-- locks   the rows added to, in the order of their keys; whoever counts holds the cursor's row already
-- clock   none
-- returns one row: how many tallies were added
WITH tally AS MATERIALIZED (
    SELECT service, call_type, model, sum(calls) AS calls, count(*) AS n
      FROM ratelimits_calltally
     WHERE id > %(after)s::bigint AND id <= %(upto)s::bigint
     GROUP BY service, call_type, model
), known AS MATERIALIZED (
    -- The services that are counted by name already, or that a limit names.
    SELECT service FROM jobs_flowsample WHERE span_seconds = 0
     UNION SELECT service FROM jobs_decisiontotal
     UNION SELECT service FROM ratelimits_limit
), named AS MATERIALIZED (
    -- The name under which each service of these calls is counted. Producers and callers of the API choose services and
    -- models: without a bound, the rows, which every scrape of metrics reads, would grow without end.
    SELECT service,
           {{name_of_service}} AS name
      FROM (SELECT DISTINCT service FROM tally) AS seen LEFT JOIN known USING (service)
), kept AS MATERIALIZED (
    -- The models that are counted by name already.
    SELECT DISTINCT service AS name, model FROM jobs_decisiontotal WHERE model <> ''
), modelled AS MATERIALIZED (
    -- The model under which the calls of each service and model are counted.
    SELECT name, model,
           CASE WHEN kept.model IS NOT NULL
                     OR row_number() OVER (PARTITION BY kept.model IS NULL ORDER BY name, model)
                        <= %(most_models)s::int - (SELECT count(*) FROM kept)
                THEN model ELSE '' END AS shown
      FROM (SELECT DISTINCT name, model FROM tally JOIN named USING (service) WHERE model <> '') AS seen
      LEFT JOIN kept USING (name, model)
), added AS (
    INSERT INTO jobs_decisiontotal AS total (decision, service, call_type, model, limit_name, calls)
    SELECT 'granted', name, call_type, coalesce(shown, ''), '', sum(calls)
      FROM tally JOIN named USING (service) LEFT JOIN modelled USING (name, model)
     GROUP BY name, call_type, coalesce(shown, '')
     ORDER BY name, call_type, coalesce(shown, '')
    ON CONFLICT (decision, service, call_type, model, limit_name) DO UPDATE SET calls = total.calls + excluded.calls
)
SELECT coalesce(sum(n), 0)::int FROM tally
