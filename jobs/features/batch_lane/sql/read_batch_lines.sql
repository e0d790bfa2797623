-- Lock lines of a provider's batch, and read their jobs as a claim does.
--
-- params  batch; numbers: of the lines
-- locks   the lines, in order: if an answer is written twice, the second writer waits for the first
-- clock   now(): the transaction's start
-- returns for each line whose job still exists: number, the line's state, whether the batch still owns the job, and
--         the columns of ClaimedJob
WITH line AS MATERIALIZED (
    SELECT number, state, job_id, token FROM jobs_providerbatchline
     WHERE provider_batch_id = %(batch)s::uuid AND number = ANY(%(numbers)s::int[])
     ORDER BY number
       FOR UPDATE
)
SELECT line.number, line.state AS line_state,
       job.fencing_token = line.token AND job.status IN {{running}} AS is_owned,
       {{claimed_job job}}, line.token, 1.0::float8 AS weight, 1 AS tier_class
  FROM line JOIN jobs_job AS job ON job.id = line.job_id
