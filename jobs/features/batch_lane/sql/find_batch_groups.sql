-- Find the jobs that wait for a batch of a provider, by project, kind, service, credential and model.
--
-- params  most: the most jobs to count in a group;
--         margin: seconds before its deadline at which a job goes live
-- locks   none
-- clock   now(): the transaction's start
-- returns for each group that has a job to collect: its five names, how many jobs (at most `most`), and the
--         seconds since the longest waiting job has moved
WITH RECURSIVE first AS (
    (SELECT project_id, kind, service, credential, model FROM jobs_job AS job
      WHERE {{waits_for_batch}}
      ORDER BY project_id, kind, service, credential, model LIMIT 1)
    UNION ALL
    SELECT next.*
      FROM first
     CROSS JOIN LATERAL (
           SELECT project_id, kind, service, credential, model FROM jobs_job AS job
            WHERE (project_id, kind, service, credential, model)
                  > (first.project_id, first.kind, first.service, first.credential, first.model)
              AND {{waits_for_batch}}
            ORDER BY project_id, kind, service, credential, model LIMIT 1) AS next
)
SELECT found.project_id, found.kind, found.service, found.credential, found.model, waiting.jobs, waiting.seconds
  FROM first AS found
 CROSS JOIN LATERAL (
       SELECT count(*)::int AS jobs, extract(epoch FROM {{now}} - min(updated_at))::float8 AS seconds
         FROM (SELECT updated_at FROM jobs_job AS job
                WHERE project_id = found.project_id AND kind = found.kind AND service = found.service
                  AND credential = found.credential AND model = found.model AND {{waits_for_batch}}
                  AND {{may_be_collected}}
                LIMIT %(most)s::int) AS job) AS waiting
 WHERE waiting.jobs > 0
   AND NOT EXISTS (SELECT FROM jobs_pauseswitch
                    WHERE {{stands_still found}}
                       OR (scope = 'service' AND key = found.service)
                       OR (scope IN ('kind', 'unknown') AND key = found.kind)
                       OR (scope = 'refused' AND EXISTS (
                               SELECT FROM jobs_refusedcalls AS refused
                                WHERE refused.name = key AND refused.stopped_at IS NOT NULL
                                  AND refused.project_id = found.project_id AND refused.service = found.service
                                  AND refused.credential = found.credential
                                  AND refused.model IN ('', found.model))))
