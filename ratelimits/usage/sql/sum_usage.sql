-- Sum up the current month of every project's users.
--
-- params  none
-- locks   none
-- clock   statement_timestamp(), in each allowance's zone
-- returns a row for each project and level: project_id, level, users, and the sums of quota, used, reserved, overage,
--         refused and expired. The level is null for a project whose users have used nothing
SELECT allowance.project_id, month.level, count(*), sum(month.quota)::bigint, sum(month.used)::bigint,
       sum(month.reserved)::bigint, sum(month.overage)::bigint, sum(month.refused), sum(month.expired)
  FROM ratelimits_allowance AS allowance
  LEFT JOIN ratelimits_usagetracking AS month
         ON month.project_id = allowance.project_id
        AND month.month_year = to_char({{statement_now}} AT TIME ZONE {{month_zone allowance}}, 'YYYY-MM')
 GROUP BY allowance.project_id, month.level
