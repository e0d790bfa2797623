-- Give this month and later ones the quotas that hold now.
--
-- params  project_id
-- order   by user and month, as in change_usage_months.sql
-- locks   the months whose quota changes
-- clock   statement_timestamp(), in the allowance's zone
-- returns their ids
WITH stale AS MATERIALIZED (
    SELECT month.id, coalesce(personal.quota, allowance.quota) AS quota
      FROM ratelimits_allowance AS allowance
      JOIN ratelimits_usagetracking AS month ON month.project_id = allowance.project_id
      LEFT JOIN ratelimits_allowanceoverride AS personal
             ON personal.project_id = month.project_id AND personal.user_id = month.user_id
     WHERE allowance.project_id = %(project_id)s
       AND month.month_year >= to_char({{statement_now}} AT TIME ZONE {{month_zone allowance}}, 'YYYY-MM')
       AND month.quota <> coalesce(personal.quota, allowance.quota)
     ORDER BY month.user_id, month.month_year COLLATE "C"
       FOR UPDATE OF month
)
UPDATE ratelimits_usagetracking AS month
   SET quota = stale.quota
  FROM stale
 WHERE month.id = stale.id
RETURNING month.id
