-- Delete users' months that began too long ago, each with all its events: a month is the sum of its events.
--
-- params  days: how long ago the month began at least; most: how many months at once
-- order   the oldest month first
-- locks   the months, SKIP LOCKED: not those that a use holds
-- clock   statement_timestamp(), in UTC
-- returns the id of each month, and how many events it had
WITH old AS MATERIALIZED (
    SELECT id, project_id, user_id, month_year
      FROM ratelimits_usagetracking
     WHERE month_year < to_char(({{statement_now}} - %(days)s * interval '1 day') AT TIME ZONE 'UTC', 'YYYY-MM')
       AND reserved = 0
     ORDER BY month_year, id
     LIMIT %(most)s
       FOR UPDATE SKIP LOCKED
), event AS (
    DELETE FROM ratelimits_usageevent AS event
     USING old
     WHERE event.project_id = old.project_id AND event.user_id = old.user_id AND event.month_year = old.month_year
    RETURNING old.id
), month AS (
    DELETE FROM ratelimits_usagetracking AS month USING old WHERE month.id = old.id
    RETURNING month.id
)
SELECT month.id, count(event.id)
  FROM month LEFT JOIN event ON event.id = month.id
 GROUP BY month.id
