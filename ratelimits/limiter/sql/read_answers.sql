-- Read the answers to idempotency keys that were taken.
--
-- params  projects, keys: parallel arrays
-- locks   none
-- clock   none
-- returns project, key, digest of the request, answer as JSON text
SELECT project_id, idempotency_key, digest, answer::text
  FROM ratelimits_decideanswer
  JOIN unnest(%(projects)s::text[], %(keys)s::text[]) AS given (project, key)
    ON project_id = project AND idempotency_key = key
