-- Prolong the leases of running jobs that this executor still owns.
--
-- params  ids, tokens: parallel arrays; lease: seconds
-- locks   the renewed rows, SKIP LOCKED: a row that an operator or a flush is writing is renewed next time
-- clock   now(): the transaction's start
-- returns the ids of jobs that this executor no longer owns: cancelled, reset or rescued meanwhile
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(%(ids)s::uuid[], %(tokens)s::bigint[]) AS t (id, token)
), candidate AS MATERIALIZED (
    SELECT job.id
      FROM given JOIN jobs_job AS job ON job.id = given.id
     WHERE job.fencing_token = given.token AND job.status IN {{running}}
     ORDER BY job.id
       FOR UPDATE OF job SKIP LOCKED
), renewed AS (
    UPDATE jobs_job AS job
       SET lease_expires_at = {{now}} + %(lease)s::float8 * interval '1 second'
     WHERE job.id = ANY(ARRAY(SELECT id FROM candidate))
)
SELECT given.id
  FROM given LEFT JOIN jobs_job AS job USING (id)
 WHERE job.id IS NULL OR job.fencing_token <> given.token OR job.status NOT IN {{running}}
