-- Find open alerts of allowances whose month is over.
--
-- params  kinds: the kinds of alerts; most: how many alerts at once
-- locks   none
-- clock   statement_timestamp(), in the allowance's zone
-- returns ids
--
-- Subjects begin with the month. Alerts of months that have not ended anywhere on earth are not even read.
SELECT alert.id
  FROM ratelimits_quotaalert AS alert
  LEFT JOIN ratelimits_allowance AS allowance ON allowance.project_id = alert.figures ->> 'project'
 WHERE alert.kind = ANY(%(kinds)s::text[]) AND alert.resolved_at IS NULL
   AND alert.subject < to_char({{statement_now}} AT TIME ZONE 'UTC' + interval '14 hours', 'YYYY-MM')
   AND alert.subject < to_char({{statement_now}} AT TIME ZONE coalesce({{month_zone allowance}}, 'UTC'), 'YYYY-MM')
 LIMIT %(most)s
