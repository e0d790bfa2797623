-- Store the new states of counters that this transaction has locked.
--
-- params  ids, states (JSON text), levels (alert levels), denials (refused by a shadow limit): parallel arrays
-- locks   none besides those held
-- clock   clock_timestamp()
-- returns nothing that matters
UPDATE ratelimits_counter AS counter
   SET state = given.state::jsonb, alert_level = given.level, updated_at = {{clock_now}},
       shadow_denials = counter.shadow_denials + given.denials
  FROM unnest(%(ids)s::text[], %(states)s::text[], %(levels)s::int[], %(denials)s::int[])
       AS given (id, state, level, denials)
 WHERE counter.id = given.id
RETURNING counter.id
