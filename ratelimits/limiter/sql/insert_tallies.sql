-- Store who was granted how many calls.
--
-- params  services, call_types, models, projects, users, kinds, calls, tokens, waits (seconds, summed): parallel
--         arrays; amounts (JSON, sums by unit): another such array, or null if every entry is null
-- locks   none
-- clock   clock_timestamp()
-- returns nothing that matters
INSERT INTO ratelimits_calltally (at, service, call_type, model, project, "user", kind, calls, tokens, waited_seconds,
                                  amounts)
SELECT {{clock_now}}, service, call_type, model, project, "user", kind, calls, tokens, wait, amounts::jsonb
  FROM unnest(%(services)s::text[], %(call_types)s::text[], %(models)s::text[], %(projects)s::text[],
              %(users)s::text[], %(kinds)s::text[], %(calls)s::int[], %(tokens)s::float8[], %(waits)s::float8[],
              %(amounts)s::text[])
       AS given (service, call_type, model, project, "user", kind, calls, tokens, wait, amounts)
RETURNING 1
