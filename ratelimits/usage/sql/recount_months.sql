-- Set months to the sums of their events and active reservations.
--
-- params  project_ids, user_ids, months: parallel arrays, one entry for each month
-- locks   none besides those held. The transaction has locked these months before: this statement sees every earlier
--         change of the months, and later changes wait
-- clock   none
-- returns project_id, user_id, month_year, used, reserved
UPDATE ratelimits_usagetracking AS month
   SET used = coalesce((SELECT sum(event.amount)
                          FROM ratelimits_usageevent AS event
                         WHERE event.project_id = month.project_id AND event.user_id = month.user_id
                           AND event.month_year = month.month_year), 0),
       reserved = coalesce((SELECT sum(held.amount)
                              FROM ratelimits_usagereservation AS held
                             WHERE held.project_id = month.project_id AND held.user_id = month.user_id
                               AND held.month_year = month.month_year AND held.status = 'active'), 0)
  FROM unnest(%(project_ids)s::text[], %(user_ids)s::uuid[], %(months)s::text[])
       AS named (project_id, user_id, month_year)
 WHERE month.project_id = named.project_id AND month.user_id = named.user_id AND month.month_year = named.month_year
RETURNING month.project_id, month.user_id, month.month_year, month.used, month.reserved
