-- Delete the batches of `candidate`, with their counts, tags and pauses.
counts AS (
    DELETE FROM jobs_jobcount WHERE batch_id = ANY(ARRAY(SELECT id FROM candidate))
), tags AS (
    DELETE FROM jobs_tag WHERE owner_id = ANY(ARRAY(SELECT id FROM candidate))
), pauses AS (
    DELETE FROM jobs_pauseswitch WHERE scope = 'batch' AND key = ANY(ARRAY(SELECT id::text FROM candidate))
)
DELETE FROM jobs_batch WHERE id = ANY(ARRAY(SELECT id FROM candidate)) RETURNING id
