-- List the jobs and batches that a job or its batch waits for, and their outcomes.
--
-- params  owners: the job, and its batch if it has one;
--         most: rows
-- order   jobs and batches that did not succeed first, then open ones
-- locks   none
-- clock   none
-- returns the id waited for, whether it is a batch, what is done when it does not succeed, and its outcome: open, met
--         or failed. Then whether the waiting job was told to go on all the same
SELECT on_id, on_batch, on_failure, outcome, let_go
  FROM (SELECT dependency.*, {{outcome_of dependency}} AS outcome
          FROM jobs_dependency AS dependency
         WHERE owner_id = ANY(%(owners)s::uuid[])) AS told
 ORDER BY outcome = 'failed' DESC, outcome = 'open' DESC, on_id
 LIMIT %(most)s::int
