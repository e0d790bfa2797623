-- Lock open dead letters, and read the columns that their requeued jobs are made from.
--
-- params  ids
-- locks   the open dead letters, in id order; waits for locked rows
-- clock   none
-- returns a row for each open dead letter, in id order; a letter that is left out does not exist or is resolved
SELECT letter.id, letter.job_id, letter.project_id, letter.batch_id, letter.kind, letter.service,
       {{payload_text letter}} AS payload,
       job.priority, job.cost, job.user_id, job.model, job.retry_policy_id, job.effect_key,
       job.complete_by, job.via, job.ended_batch::text AS ended_batch, job.takes::text AS takes
  FROM jobs_deadletter AS letter
  JOIN jobs_job AS job ON job.id = letter.job_id
 WHERE letter.id = ANY(%(ids)s::uuid[]) AND letter.resolution IS NULL
 ORDER BY letter.id
   FOR UPDATE OF letter
