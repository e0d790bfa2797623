-- Mark events that this transaction has inserted as beyond the quota.
--
-- params  project_id, event_ids
-- locks   none besides those held: the transaction has inserted the events
-- clock   none
-- returns their ids
UPDATE ratelimits_usageevent
   SET over_limit = true
 WHERE project_id = %(project_id)s AND event_id = ANY(%(event_ids)s::uuid[])
RETURNING event_id
