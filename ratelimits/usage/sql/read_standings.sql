-- Read users' quota, use and reservations in the current month.
--
-- params  project_id, user_ids
-- locks   none
-- clock   statement_timestamp(), in the allowance's zone
-- returns one row for each user, even without any use: user_id, the allowance's unit, policy and zone, month_year,
--         quota, used, reserved; no row if the project has no allowance
SELECT given.user_id, allowance.unit, allowance.policy, allowance.time_zone, current.month_year,
       coalesce(personal.quota, allowance.quota), coalesce(month.used, 0), coalesce(month.reserved, 0)
  FROM ratelimits_allowance AS allowance
 CROSS JOIN LATERAL (
       SELECT to_char({{statement_now}} AT TIME ZONE {{month_zone allowance}}, 'YYYY-MM') AS month_year) AS current
 CROSS JOIN unnest(%(user_ids)s::uuid[]) AS given (user_id)
  LEFT JOIN ratelimits_allowanceoverride AS personal
         ON personal.project_id = allowance.project_id AND personal.user_id = given.user_id
  LEFT JOIN ratelimits_usagetracking AS month
         ON month.project_id = allowance.project_id AND month.user_id = given.user_id
        AND month.month_year = current.month_year
 WHERE allowance.project_id = %(project_id)s
