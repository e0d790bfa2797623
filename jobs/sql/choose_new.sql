-- Choose and lock the job that is ready outside lanes, if it is the only such job and so needs no order.
-- The variant `pooled`, with the parameter `pool`, chooses among the jobs of that pool.
--
-- params  strange: kinds, each with its pool, that this executor leaves to others
-- locks   the chosen rows, SKIP LOCKED
-- clock   now(): the transaction's start
-- returns rows as choose_jobs.sql does; two rows: several jobs may be claimed, and their order matters. No row if
--         twenty jobs or more are ready, even if something holds them back
SELECT {{claimed_job job}}, claim.token,
       (SELECT weight FROM tenancy_project WHERE id = job.project_id) AS weight,
       (SELECT count(*)::int FROM jobs_agingrule AS own JOIN jobs_agingrule AS rule ON rule.base <= own.base
         WHERE own.tier = job.priority) AS tier_class
  FROM (SELECT nextval('jobs_fencing_token') AS token) AS claim
 CROSS JOIN (
       SELECT id, count(*) OVER () AS ready
         -- Order by all columns of the ready index, as in choose_jobs.sql.
         FROM (SELECT id FROM jobs_job AS job
                WHERE {{claimable}} AND {{of_pool}}
                ORDER BY project_id, priority, eligible_since, id LIMIT 20) AS first) AS near
 CROSS JOIN LATERAL (
       SELECT * FROM jobs_job AS job
        WHERE id = near.id AND {{claimable}}
          AND {{kind_of_pool}} <> ALL(%(strange)s::text[])
          -- The token was drawn before this lock: a claim with a later token may have begun and ended meanwhile.
          AND fencing_token < claim.token
          AND {{not_expired}}
          AND NOT EXISTS (SELECT FROM jobs_pauseswitch AS switch WHERE {{stands_still job}} OR {{held_back job}})
          AND NOT EXISTS (SELECT FROM jobs_servicebreaker AS breaker WHERE {{does_not_answer job}})
          FOR UPDATE OF job SKIP LOCKED) AS job
 WHERE near.ready < 20
 LIMIT 2
