-- Reserve an amount of a user's month: if there is room, count the amount and add the reservation, otherwise neither.
--
-- params  project_id, user_id; amount: in the allowance's unit; id: the new reservation's; idempotency_key: may be null
-- locks   the user's month
-- clock   statement_timestamp(): the month is the database's, in the allowance's zone
-- returns no row: the project has no allowance, or moves to another installation; else one row. Its id is null where
--         there was no room. replayed: the key was used before; the row is its reservation, with that user and amount
--
-- The room is checked twice, because a month's first reservation finds no row whose WHERE could refuse it. A month's
-- row takes the quota that holds now; otherwise a row that was inserted while the quota was changed would keep the old
-- quota.
-- If two statements have the same new key, the later one fails with a unique violation, so its amount is not counted
-- twice. The caller sends it again and gets the existing reservation.
WITH rule AS MATERIALIZED (
    SELECT to_char({{statement_now}} AT TIME ZONE {{month_zone allowance}}, 'YYYY-MM') AS month_year,
           allowance.time_zone, allowance.policy = 'record_overage' AS is_lenient,
           coalesce(personal.quota, allowance.quota) AS quota,
           {{statement_now}} + allowance.reservation_seconds * interval '1 second' AS expires_at
      FROM ratelimits_allowance AS allowance
      LEFT JOIN ratelimits_allowanceoverride AS personal
             ON personal.project_id = allowance.project_id AND personal.user_id = %(user_id)s
     WHERE allowance.project_id = %(project_id)s
       -- Nothing may be added once the copy of a project has begun. This also stops requests that were let in before.
       AND EXISTS (SELECT FROM tenancy_project WHERE id = allowance.project_id AND move = '')
), known AS MATERIALIZED (
    SELECT id, user_id, month_year, amount, expires_at, remaining
      FROM ratelimits_usagereservation
     WHERE project_id = %(project_id)s AND idempotency_key = %(idempotency_key)s
), taken AS (
    INSERT INTO ratelimits_usagetracking AS month (project_id, user_id, month_year, quota, reserved)
    SELECT %(project_id)s, %(user_id)s, month_year, quota, %(amount)s
      FROM rule
     WHERE (is_lenient OR %(amount)s <= quota) AND NOT EXISTS (SELECT FROM known)
    ON CONFLICT (project_id, user_id, month_year) DO UPDATE
       SET reserved = month.reserved + excluded.reserved, quota = excluded.quota
     WHERE month.used + month.reserved + excluded.reserved <= excluded.quota OR (SELECT is_lenient FROM rule)
    RETURNING quota - used - reserved AS remaining
), made AS (
    INSERT INTO ratelimits_usagereservation
           (id, project_id, user_id, month_year, amount, expires_at, idempotency_key, remaining)
    SELECT %(id)s, %(project_id)s, %(user_id)s, rule.month_year, %(amount)s, rule.expires_at, %(idempotency_key)s,
           taken.remaining
      FROM taken CROSS JOIN rule
    RETURNING id, user_id, month_year, amount, expires_at, remaining
), answer AS (
    SELECT *, true AS replayed FROM known UNION ALL SELECT *, false FROM made
)
SELECT answer.id, answer.user_id, coalesce(answer.month_year, rule.month_year), answer.amount, answer.expires_at,
       answer.remaining, answer.replayed, rule.time_zone, rule.quota
  FROM rule LEFT JOIN answer ON true
