-- Claim idempotency keys whose answers are about to be made.
--
-- params  projects, keys, digests: parallel arrays, each (project, key) once
-- locks   the keys, in their order; waits while another transaction has claimed one of them
-- clock   now(): the transaction's start
-- returns project and key of each key that was free
INSERT INTO ratelimits_decideanswer (project_id, idempotency_key, digest, answer, created_at)
SELECT project, key, digest, 'null', {{now}}
  FROM unnest(%(projects)s::text[], %(keys)s::text[], %(digests)s::text[]) AS given (project, key, digest)
 ORDER BY project, key
    ON CONFLICT (project_id, idempotency_key) DO NOTHING
RETURNING project_id, idempotency_key
