-- Compare every month with the events and active reservations that it sums up.
--
-- params  project_id: null for all
-- locks   none; one snapshot, so that concurrent use makes no difference
-- clock   none
-- returns a row for each month that differs: the number of all months, project_id, user_id, month_year, used, the sum
--         of its events, reserved, the sum of its active reservations. If none differs, one row with the number and
--         nulls
WITH entry AS (
    SELECT project_id, user_id, month_year, used, 0 AS counted, reserved, 0 AS held FROM ratelimits_usagetracking
    UNION ALL
    SELECT project_id, user_id, month_year, 0, amount, 0, 0 FROM ratelimits_usageevent
    UNION ALL
    SELECT project_id, user_id, month_year, 0, 0, 0, amount FROM ratelimits_usagereservation WHERE status = 'active'
), month AS MATERIALIZED (
    SELECT project_id, user_id, month_year, sum(used)::bigint AS used, sum(counted)::bigint AS counted,
           sum(reserved)::bigint AS reserved, sum(held)::bigint AS held
      FROM entry
     WHERE %(project_id)s::text IS NULL OR project_id = %(project_id)s
     GROUP BY project_id, user_id, month_year
)
SELECT total.months, differing.*
  FROM (SELECT count(*) AS months FROM month) AS total
  LEFT JOIN (SELECT * FROM month WHERE used <> counted OR reserved <> held) AS differing ON true
 ORDER BY differing.project_id, differing.user_id, differing.month_year
