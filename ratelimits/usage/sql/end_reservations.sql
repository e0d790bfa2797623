-- End the named reservations that are active. The caller then gives back what each held, once.
--
-- params  project_id; status: confirmed or cancelled; ids, user_ids (null: any): parallel arrays, one entry for each
--         reservation
-- locks   the reservations, in the order of their ids, and waits for them
-- clock   none
-- returns the reservations that this statement has ended: id, project_id, user_id, month_year, amount
WITH live AS MATERIALIZED (
    SELECT held.id
      FROM ratelimits_usagereservation AS held
      JOIN unnest(%(ids)s::uuid[], %(user_ids)s::uuid[]) AS named (id, user_id)
        ON held.id = named.id AND held.user_id = coalesce(named.user_id, held.user_id)
     WHERE held.project_id = %(project_id)s AND held.status = 'active'
     ORDER BY held.id
       FOR UPDATE OF held
)
UPDATE ratelimits_usagereservation AS held
   SET status = %(status)s
  FROM live
 WHERE held.id = live.id
RETURNING held.id, held.project_id, held.user_id, held.month_year, held.amount
