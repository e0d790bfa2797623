-- Put jobs that the caller has locked into lanes, because a limit came after them.
--
-- params  ids, lanes: parallel arrays
-- locks   none besides those held
-- clock   now(): the transaction's start
-- returns the ids
UPDATE jobs_job AS job SET lane = given.lane, updated_at = {{now}}
  FROM unnest(%(ids)s::uuid[], %(lanes)s::text[]) AS given (id, lane)
 WHERE job.id = given.id
RETURNING job.id
