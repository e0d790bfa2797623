-- Outcome of the job or batch that the jobs_dependency row `job` names: open, met or failed. Its requeues count, too.
-- ORDER BY ... LIMIT 1 makes the planner use the index of a batch: EXISTS may read all jobs into a hash.
CASE WHEN job.on_batch AND (SELECT true FROM jobs_job AS part
                             WHERE part.batch_id = job.on_id AND part.status IN {{unfinished}}
                             ORDER BY part.status LIMIT 1)
     THEN 'open'
     WHEN job.on_batch AND (SELECT true FROM jobs_job AS part
                             WHERE part.batch_id = job.on_id AND part.status IN ('failed', 'cancelled')
                               AND NOT EXISTS (SELECT FROM jobs_job AS later WHERE later.origin_id = part.id)
                             ORDER BY part.status LIMIT 1)
     THEN 'failed'
     WHEN job.on_batch AND (SELECT true FROM jobs_batch WHERE id = job.on_id) THEN 'met'
     WHEN job.on_batch THEN 'failed'
     ELSE coalesce((WITH RECURSIVE turn AS (
                        SELECT first.id, first.status FROM jobs_job AS first WHERE first.id = job.on_id
                         UNION ALL
                        SELECT later.id, later.status
                          FROM turn
                         CROSS JOIN LATERAL (SELECT id, status FROM jobs_job AS later WHERE later.origin_id = turn.id
                                             OFFSET 0) AS later)  -- no join, which may read the origins of all jobs
                    SELECT CASE WHEN bool_or(turn.status = 'completed') THEN 'met'
                                WHEN bool_or(turn.status IN {{unfinished}}) THEN 'open' END FROM turn), 'failed') END
