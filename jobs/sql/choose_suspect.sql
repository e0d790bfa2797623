-- Choose and lock the oldest job with two crashes or more: quarantine runs such jobs one at a time.
-- The variant `pooled`, with the parameter `pool`, chooses among the jobs of that pool.
--
-- params  strange: kinds, each with its pool, that this executor leaves to others
-- locks   the chosen row, SKIP LOCKED
-- clock   now(): the transaction's start
-- returns a row as choose_jobs.sql does
SELECT {{claimed_job job}}, claim.token,
       (SELECT weight FROM tenancy_project WHERE id = job.project_id) AS weight, 0 AS tier_class
  FROM (SELECT nextval('jobs_fencing_token') AS token) AS claim
 CROSS JOIN LATERAL (
       SELECT * FROM jobs_job AS job
        WHERE {{ready}} AND crash_count >= 2 AND {{of_pool}}
          -- coalesce() hides the conditions from the planner's estimates: otherwise it may expect no match, and read
          -- far more jobs than the first match.
          -- The token was drawn before this lock: a claim with a later token may have begun and ended meanwhile.
          AND coalesce(fencing_token < claim.token, true)
          AND coalesce({{kind_of_pool job}} <> ALL(%(strange)s::text[]), true)
          AND {{not_expired}}
          AND NOT EXISTS (SELECT FROM jobs_pauseswitch AS switch
                           WHERE {{stands_still job}} OR {{held_back job}})
          AND NOT EXISTS (SELECT FROM jobs_servicebreaker AS breaker
                           WHERE {{does_not_answer job}} AND breaker.probe_job_id IS DISTINCT FROM job.id)
        ORDER BY eligible_since, job.id
        LIMIT 1
          FOR UPDATE OF job SKIP LOCKED) AS job
