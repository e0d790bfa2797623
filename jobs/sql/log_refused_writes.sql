-- Log on each job that a stale executor's write was refused.
--
-- params  ids, tokens, whats (completed? failed? in a word): parallel arrays, one entry a refused write
-- locks   none
-- clock   now(): the transaction's start
-- returns what was logged: id, token, what. Not logged: the repetition of a write whose commit had arrived although
--         its answer was lost with the connection; the token is still the job's own
WITH given AS (
    SELECT * FROM unnest(%(ids)s::uuid[], %(tokens)s::bigint[], %(whats)s::text[]) AS t (id, token, what)
), logged AS (
    INSERT INTO jobs_jobevent (job_id, project_id, user_id, batch_id, service, event_type, message, data)
    SELECT job.id, job.project_id, job.user_id, job.batch_id, job.service, 'error', 'lease lost: a stale write was refused',
           jsonb_build_object('operation', 'lease_lost', 'write', given.what, 'fencing_token', given.token,
                              'current_token', job.fencing_token)
      FROM given JOIN jobs_job AS job USING (id)
     WHERE NOT (job.fencing_token = given.token
                AND (given.what, job.status) IN (('succeeded', 'completed'), ('failed', 'failed')))
    RETURNING job_id
)
SELECT given.* FROM given JOIN logged ON logged.job_id = given.id
