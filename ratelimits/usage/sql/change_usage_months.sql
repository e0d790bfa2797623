-- Add use to months, and subtract released reservations from them. The months are locked in one order.
--
-- params  project_ids, user_ids, months (YYYY-MM), used, released (both at least 0), expired (how many of the
--         reservations nobody confirmed): parallel arrays, one entry for each month
-- order   by project, user and month: every statement that locks several months keeps this order
-- locks   the months
-- clock   statement_timestamp()
-- returns project_id, user_id, month_year, quota, used, reserved: after the change
--
-- A month that has a reservation has a row, so a release is never inserted. The current month and later ones take the
-- quota that holds now, as in reserve_usage.sql.
INSERT INTO ratelimits_usagetracking AS month (project_id, user_id, month_year, quota, used, reserved, expired)
SELECT change.project_id, change.user_id, change.month_year, coalesce(personal.quota, allowance.quota, 0), change.used,
       change.released, change.expired
  FROM unnest(%(project_ids)s::text[], %(user_ids)s::uuid[], %(months)s::text[], %(used)s::bigint[],
              %(released)s::bigint[], %(expired)s::bigint[])
       AS change (project_id, user_id, month_year, used, released, expired)
  LEFT JOIN ratelimits_allowance AS allowance ON allowance.project_id = change.project_id
  LEFT JOIN ratelimits_allowanceoverride AS personal
         ON personal.project_id = change.project_id AND personal.user_id = change.user_id
 ORDER BY change.project_id COLLATE "C", change.user_id, change.month_year COLLATE "C"
ON CONFLICT (project_id, user_id, month_year) DO UPDATE
   SET used = month.used + excluded.used,
       reserved = month.reserved - excluded.reserved,
       expired = month.expired + excluded.expired,
       quota = CASE WHEN month.month_year
                         >= (SELECT to_char({{statement_now}} AT TIME ZONE {{month_zone allowance}}, 'YYYY-MM')
                               FROM ratelimits_allowance AS allowance
                              WHERE allowance.project_id = month.project_id)
                    THEN excluded.quota ELSE month.quota END
RETURNING project_id, user_id, month_year, quota, used, reserved
