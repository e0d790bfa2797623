-- Lock months whose level differs from the level that was last reported to people.
--
-- params  most: how many months at once
-- order   by id, so that no month is left behind
-- locks   the months, SKIP LOCKED: the next sweep finds the months that a use has locked
-- clock   statement_timestamp(), in the allowance's zone
-- returns id, project_id, user_id, month_year, quota, used, overage, level, alerted_level, the allowance's unit and
--         policy, and whether the month is over; a month without an allowance counts as over
SELECT month.id, month.project_id, month.user_id, month.month_year, month.quota, month.used, month.overage, month.level,
       month.alerted_level, allowance.unit, allowance.policy,
       coalesce(month.month_year < to_char({{statement_now}} AT TIME ZONE {{month_zone allowance}}, 'YYYY-MM'), true)
  FROM ratelimits_usagetracking AS month
  LEFT JOIN ratelimits_allowance AS allowance ON allowance.project_id = month.project_id
 WHERE month.level <> month.alerted_level
 ORDER BY month.id
 LIMIT %(most)s
   FOR UPDATE OF month SKIP LOCKED
