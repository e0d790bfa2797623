-- Log on each job that a write was refused: a stale executor's, or what came after the job was cancelled or reset.
--
-- params  ids, tokens, whats (completed? failed? in a word), crashes (crash_count when it was claimed): parallel arrays,
--         one entry a refused write
-- locks   none
-- clock   now(): the transaction's start
-- returns what was logged: id, token, what, and whether the lease was lost. Not logged: the repetition of a write whose
--         commit had arrived although its answer was lost with the connection; the token is still the job's own
WITH given AS (
    SELECT * FROM unnest(%(ids)s::uuid[], %(tokens)s::bigint[], %(whats)s::text[], %(crashes)s::int[])
                  AS t (id, token, what, crashes)
), refused AS MATERIALIZED (
    SELECT job.id, job.project_id, job.user_id, job.batch_id, job.service, job.status, job.fencing_token, given.token,
           -- Who judges an executor gone counts a crash, or names the claim that went with its host; who cancels or
           -- resets a job does neither.
           given.what, job.crash_count > given.crashes OR EXISTS (
               SELECT FROM jobs_jobevent AS event
                WHERE event.job_id = job.id AND event.data @> jsonb_build_object('lost_with_host', given.token)
           ) AS is_lost
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
