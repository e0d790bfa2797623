-- Delete the stored answers that name a user, one of the user's jobs or batches, or one of the given archived jobs.
--
-- params  project, user; ids: of the user's archived jobs
-- locks   the deleted rows
-- clock   none
-- returns the ids deleted
DELETE FROM jobs_idempotencyrecord AS record
 WHERE record.project_id = %(project)s::text
   AND (position(%(user)s::uuid::text IN record.answer::text) > 0
        OR EXISTS (SELECT FROM regexp_matches(record.answer::text, '[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}', 'g')
                               AS named (id)
                    WHERE named.id[1]::uuid = ANY(%(ids)s::uuid[])
                       OR EXISTS (SELECT FROM jobs_job AS job
                                   WHERE job.id = named.id[1]::uuid AND job.user_id = %(user)s::uuid)
                       OR EXISTS (SELECT FROM jobs_batch AS batch
                                   WHERE batch.id = named.id[1]::uuid AND batch.user_id = %(user)s::uuid)))
RETURNING record.id
