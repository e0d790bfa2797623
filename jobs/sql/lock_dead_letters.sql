-- Lock open dead letters, and read what their new jobs are made from.
--
-- params  ids
-- locks   the open ones, in id order; waits rather than skips
-- clock   none
-- returns one row an open dead letter, in id order; a missing one is unknown or resolved
SELECT letter.id, letter.job_id, letter.project_id, letter.batch_id, letter.kind, letter.service,
       {{payload_text letter}} AS payload,
       job.priority, job.cost, job.user_id, job.model, job.retry_policy_id, job.effect_key,
       job.complete_by, job.via, job.ended_batch::text AS ended_batch, job.takes::text AS takes
  FROM jobs_deadletter AS letter
  JOIN jobs_job AS job ON job.id = letter.job_id
 WHERE letter.id = ANY(%(ids)s::uuid[]) AND letter.resolution IS NULL
 ORDER BY letter.id
   FOR UPDATE OF letter
