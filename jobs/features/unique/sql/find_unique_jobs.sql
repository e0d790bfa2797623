-- Find the jobs that have these unique keys and have not ended. A debounced job that was claimed is left out.
--
-- params  project;
--         keys: as stored
-- locks   none
-- clock   none
-- returns whether the job is debounced, the key, the id, kind and user. Then whether its work can no longer be
--         replaced: an executor claimed it once, or it is for a batch of its provider
SELECT false, unique_key, id, kind, user_id, (fencing_token <> 0 OR first_attempt_at IS NOT NULL OR via IS NOT NULL)
  FROM jobs_job
 WHERE project_id = %(project)s::text AND unique_key = ANY(%(keys)s::text[])
   AND unique_key IS NOT NULL AND debounce_until IS NULL AND status IN {{unfinished}}
 UNION ALL
SELECT true, unique_key, id, kind, user_id, false
  FROM jobs_job
 WHERE project_id = %(project)s::text AND unique_key = ANY(%(keys)s::text[])
   AND unique_key IS NOT NULL AND debounce_until IS NOT NULL AND fencing_token = 0 AND first_attempt_at IS NULL
   AND status IN {{waiting}}
