-- Choose and lock the oldest job that has brought down its process twice: quarantine runs such jobs one at a time.
-- In the variant `pooled`, which takes the parameter `pool`, of that pool's jobs.
--
-- params  strange: kinds that this executor leaves to others
-- locks   the chosen row, SKIP LOCKED
-- clock   now(): the transaction's start
-- returns as choose_jobs.sql does
SELECT {{claimed_job job}}, nextval('jobs_fencing_token') AS token,
       (SELECT weight FROM tenancy_project WHERE id = job.project_id) AS weight, 0 AS tier_class
  FROM jobs_job AS job
 WHERE {{ready}} AND crash_count >= 2 AND {{of_pool}}
   -- In an expression that the planner cannot estimate: where most jobs are of one kind it would expect none, and read all.
   AND coalesce(kind <> ALL(%(strange)s::text[]), true)
   AND {{not_expired}}
   AND NOT EXISTS (SELECT FROM jobs_pauseswitch
                    WHERE {{stands_still job}} OR {{held_back}})
   AND NOT EXISTS (SELECT FROM jobs_servicebreaker AS breaker
                    WHERE {{does_not_answer job}} AND breaker.probe_job_id IS DISTINCT FROM job.id)
 ORDER BY eligible_since, job.id
 LIMIT 1
   FOR UPDATE OF job SKIP LOCKED
