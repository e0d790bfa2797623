-- End active reservations that nobody confirmed in time: what each held is then to be given back, once.
--
-- params  most
-- order   the longest expired first
-- locks   the reservations; skips those that somebody is ending
-- clock   statement_timestamp()
-- returns id, project_id, user_id, month_year, amount
WITH stale AS MATERIALIZED (
    SELECT id
      FROM ratelimits_usagereservation
     WHERE status = 'active' AND expires_at <= statement_timestamp()
     ORDER BY expires_at
     LIMIT %(most)s
       FOR UPDATE SKIP LOCKED
)
UPDATE ratelimits_usagereservation AS held
   SET status = 'expired'
  FROM stale
 WHERE held.id = stale.id
RETURNING held.id, held.project_id, held.user_id, held.month_year, held.amount
