-- End active reservations that nobody confirmed in time. The caller then gives back what each held, once.
--
-- params  most: how many at once; project_ids, user_ids, months: parallel arrays, the months to leave alone
-- order   the longest expired first
-- locks   the reservations, SKIP LOCKED: not those that somebody is ending
-- clock   statement_timestamp()
-- returns id, project_id, user_id, month_year, amount, and whether it was ended. A reservation stays active if its
--         month holds less than these reservations together, which happens only in a broken ledger
WITH stale AS MATERIALIZED (
    SELECT id, project_id, user_id, month_year, amount
      FROM ratelimits_usagereservation
     WHERE status = 'active' AND expires_at <= {{statement_now}}
       AND (project_id, user_id, month_year)
           NOT IN (SELECT * FROM unnest(%(project_ids)s::text[], %(user_ids)s::uuid[], %(months)s::text[]))
     ORDER BY expires_at
     LIMIT %(most)s
       FOR UPDATE SKIP LOCKED
), judged AS MATERIALIZED (
    SELECT due.*, month.reserved >= due.of_month AS is_held
      FROM (SELECT *, sum(amount) OVER (PARTITION BY project_id, user_id, month_year) AS of_month FROM stale) AS due
      LEFT JOIN ratelimits_usagetracking AS month USING (project_id, user_id, month_year)
), ended AS (
    UPDATE ratelimits_usagereservation AS held
       SET status = 'expired'
      FROM judged
     WHERE held.id = judged.id AND judged.is_held
    RETURNING held.id
)
SELECT id, project_id, user_id, month_year, amount, id IN (SELECT id FROM ended) FROM judged
