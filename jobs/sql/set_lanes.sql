-- Put jobs that the caller has locked into lanes, because a limit was added after they were submitted.
--
-- params  ids, lanes: parallel arrays
-- locks   none: the caller has locked the rows
-- clock   now(): the transaction's start
-- returns the ids
UPDATE jobs_job AS job SET lane = given.lane, updated_at = {{now}}
  FROM unnest(%(ids)s::uuid[], %(lanes)s::text[]) AS given (id, lane)
 WHERE job.id = given.id
RETURNING job.id
