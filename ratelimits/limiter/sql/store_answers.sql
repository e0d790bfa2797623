-- Store the answers of keys claimed in this transaction.
--
-- params  projects, keys, answers (JSON text): parallel arrays
-- locks   none besides those held: the claim of the keys has taken them
-- clock   none
-- returns nothing that matters
UPDATE ratelimits_decideanswer SET answer = given.answer::jsonb
  FROM unnest(%(projects)s::text[], %(keys)s::text[], %(answers)s::text[]) AS given (project, key, answer)
 WHERE project_id = project AND idempotency_key = key
RETURNING project_id
