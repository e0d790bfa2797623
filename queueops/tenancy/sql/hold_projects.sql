-- Keep projects from being switched to another installation until the transaction ends; return their moves' states.
--
-- params  projects: their ids
-- order   by id
-- locks   the projects' rows FOR KEY SHARE: only a switch waits for these locks, or makes this statement wait
-- clock   none
-- returns id, move, moved_to of each project
SELECT id, move, moved_to
  FROM tenancy_project
 WHERE id = ANY(%(projects)s::text[])
 ORDER BY id
   FOR KEY SHARE
