-- Delete the jobs of `candidate`, with their tags, dead letters, and the rows of features that belong to them.
letters AS (
    DELETE FROM jobs_deadletter WHERE job_id = ANY(ARRAY(SELECT id FROM candidate))
), forgotten AS (
    UPDATE jobs_deadletter SET requeued_as_id = NULL WHERE requeued_as_id = ANY(ARRAY(SELECT id FROM candidate))
), tags AS (
    DELETE FROM jobs_tag WHERE owner_id = ANY(ARRAY(SELECT id FROM candidate))
), {{delete_with_jobs}}
DELETE FROM jobs_job WHERE id = ANY(ARRAY(SELECT id FROM candidate)) RETURNING id
