-- Log on each job that a write was refused: from a stale executor, or after the job was cancelled or reset.
--
-- params  ids, tokens, whats (the outcome in a word, such as succeeded), lost (whether the lease was lost, see
--         find_lost_claims.sql): parallel arrays, one entry a refused write
-- locks   none
-- clock   now(), by the log's default: the transaction's start
-- returns id, token, outcome, and whether the lease was lost, of each logged write. A write that is repeated because
--         the connection broke after its commit is not logged: the job still has its token
WITH given AS (
    SELECT * FROM unnest(%(ids)s::uuid[], %(tokens)s::bigint[], %(whats)s::text[], %(lost)s::bool[])
                  AS t (id, token, what, is_lost)
), refused AS MATERIALIZED (
    SELECT job.id, job.project_id, job.user_id, job.batch_id, job.service, job.status, job.fencing_token, given.token,
           given.what, given.is_lost
      FROM given JOIN jobs_job AS job USING (id)
     WHERE NOT (job.fencing_token = given.token
                AND (given.what, job.status) IN (('succeeded', 'completed'), ('failed', 'failed')))
), logged AS (
    INSERT INTO jobs_jobevent (job_id, project_id, user_id, batch_id, service, event_type, message, data)
    SELECT id, project_id, user_id, batch_id, service, CASE WHEN is_lost THEN 'error' ELSE 'audit' END,
           CASE WHEN is_lost THEN 'lease lost: a stale write was refused'
                WHEN status = 'cancelled' THEN 'its executor''s answer came after it was cancelled'
                ELSE 'its executor''s answer came after it was taken back' END,
           jsonb_build_object('operation', CASE WHEN is_lost THEN 'lease_lost' ELSE 'late_answer' END,
                              'write', what, 'fencing_token', token, 'current_token', fencing_token)
      FROM refused
)
SELECT id, token, what, is_lost FROM refused
