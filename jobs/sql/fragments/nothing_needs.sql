-- True for an ended job with no open dead letter, no requeue, no RestoredJob, and no dependency on it or on its batch.
-- For a requeue, a dependency on the job that it repeats or on that job's batch counts, too: it waits for the requeue.
-- LIMIT 1 and OFFSET 0 make the planner look up each row in its index; as a join, it may read all rows.
(SELECT true FROM jobs_deadletter AS letter WHERE letter.job_id = job.id AND letter.resolution IS NULL LIMIT 1) IS NULL
       AND (SELECT true FROM jobs_job AS later WHERE later.origin_id = job.id LIMIT 1) IS NULL
       AND (SELECT true FROM jobs_restoredjob AS kept WHERE kept.job_id = job.id LIMIT 1) IS NULL
       AND (SELECT true FROM jobs_dependency AS needed WHERE needed.on_id = job.id LIMIT 1) IS NULL
       AND (SELECT true FROM jobs_dependency AS needed WHERE needed.on_id = job.batch_id LIMIT 1) IS NULL
       AND (job.origin_id IS NULL OR NOT EXISTS (
            WITH RECURSIVE earlier AS (
                SELECT first.id, first.batch_id, first.origin_id FROM jobs_job AS first WHERE first.id = job.origin_id
                 UNION ALL
                SELECT one.id, one.batch_id, one.origin_id
                  FROM earlier
                 CROSS JOIN LATERAL (SELECT id, batch_id, origin_id FROM jobs_job WHERE id = earlier.origin_id
                                     OFFSET 0) AS one
            )
            SELECT FROM earlier
             CROSS JOIN LATERAL (
                   SELECT FROM jobs_dependency WHERE on_id IN (earlier.id, earlier.batch_id)
                    LIMIT 1
                   ) AS needed))
