-- Put the events that are new into the ledger, each with the month and the units that it counts in.
--
-- params  project_id; max_age: an interval; event_ids, user_ids, tokens, occurred_at, reservations (null: none),
--         services: parallel arrays, one entry for each event
-- order   by event id: transactions that report the same events wait for one another in one order
-- locks   the events; waits for another transaction that is inserting the same events
-- clock   statement_timestamp()
-- returns no row: the project has no allowance, or moves to another installation; else a row for each event, in order:
--         fault (too_old, from_future or null), is_new, month_year, amount
--
-- An event that names a reservation of its own user counts in the reservation's month, even if the reservation has
-- ended. If an event id comes several times, the first of these events that is not refused is the new one.
WITH rule AS MATERIALIZED (
    SELECT unit, {{month_zone allowance}} AS time_zone, {{statement_now}} AS now
      FROM ratelimits_allowance AS allowance
     WHERE project_id = %(project_id)s
       -- Nothing may be added once the copy of a project has begun. This also stops requests that were let in before.
       AND EXISTS (SELECT FROM tenancy_project WHERE id = project_id AND move = '')
), reported AS (
    SELECT event.*,
           coalesce(held.month_year, to_char(event.occurred_at AT TIME ZONE rule.time_zone, 'YYYY-MM')) AS month_year,
           CASE rule.unit WHEN 'tokens' THEN event.tokens ELSE 1 END AS amount,
           CASE WHEN event.occurred_at < rule.now - %(max_age)s::interval THEN 'too_old'
                WHEN event.occurred_at > rule.now + interval '5 minutes' THEN 'from_future' END AS fault
      FROM rule
     CROSS JOIN unnest(%(event_ids)s::uuid[], %(user_ids)s::uuid[], %(tokens)s::bigint[],
                       %(occurred_at)s::timestamptz[], %(reservations)s::uuid[], %(services)s::text[])
           WITH ORDINALITY AS event (event_id, user_id, tokens, occurred_at, reservation, service, place)
      LEFT JOIN LATERAL (
           SELECT month_year
             FROM ratelimits_usagereservation
            WHERE id = event.reservation AND project_id = %(project_id)s AND user_id = event.user_id
              AND created_at > rule.now - %(max_age)s::interval
            LIMIT 1  -- without LIMIT, PostgreSQL may hash all reservations for one statement
           ) AS held ON true
), given AS MATERIALIZED (
    SELECT *, fault IS NULL
              AND row_number() OVER (PARTITION BY event_id, fault IS NULL ORDER BY place) = 1 AS is_first
      FROM reported
), added AS (
    INSERT INTO ratelimits_usageevent
           (event_id, project_id, user_id, month_year, service, tokens, amount, occurred_at, reservation)
    SELECT event_id, %(project_id)s, user_id, month_year, service, tokens, amount, occurred_at, reservation
      FROM given
     WHERE is_first
     ORDER BY event_id
    ON CONFLICT (project_id, event_id) DO NOTHING
    RETURNING event_id
)
SELECT fault, is_first AND event_id IN (SELECT event_id FROM added), month_year, amount
  FROM given
 ORDER BY place
