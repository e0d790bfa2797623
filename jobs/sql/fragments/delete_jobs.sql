-- Delete the jobs of `candidate`, with their tags, dead letters, webhook deliveries and what webhooks hear of them.
letters AS (
    DELETE FROM jobs_deadletter WHERE job_id = ANY(ARRAY(SELECT id FROM candidate))
), forgotten AS (
    UPDATE jobs_deadletter SET requeued_as_id = NULL WHERE requeued_as_id = ANY(ARRAY(SELECT id FROM candidate))
), tags AS (
    DELETE FROM jobs_tag WHERE owner_id = ANY(ARRAY(SELECT id FROM candidate))
), deliveries AS (
    DELETE FROM jobs_webhookdelivery WHERE job_id = ANY(ARRAY(SELECT id FROM candidate))
), told AS (
    DELETE FROM jobs_webhookjob WHERE job_id = ANY(ARRAY(SELECT id FROM candidate))
)
DELETE FROM jobs_job WHERE id = ANY(ARRAY(SELECT id FROM candidate)) RETURNING id
