-- Choose and lock up to `wanted` jobs, where one queue alone has work and its jobs go by their age. A queue here is the
-- jobs of one project and tier that stand outside lanes. choose_jobs.sql would choose the same, at twice the price: it
-- scores and sorts what it looks at. In the variant `pooled`, which takes the parameter `pool`, of that pool's jobs.
--
-- params  wanted: most jobs to choose;
--         strange: kinds, each of a pool, that this executor leaves to others;
--         most_bytes: of all their payloads and results so far
-- locks   the chosen rows, SKIP LOCKED: never waits
-- clock   now(): the transaction's start
-- returns as choose_jobs.sql does. None where the order may be another one: where a second queue has work, or anything is
--         paused. Likewise where a target does not answer, or a job has waited for long enough to rise
WITH first AS MATERIALIZED (
    -- The first job of all queues. All columns of the ready index in its order, as in choose_jobs.sql.
    SELECT project_id, priority, eligible_since, id FROM jobs_job
     WHERE {{claimable}} AND {{of_pool}}
     ORDER BY project_id, priority, eligible_since, id LIMIT 1
), alone AS MATERIALIZED (
    -- The same with what turns count, if its queue is the only one.
    SELECT first.*, (SELECT weight FROM tenancy_project WHERE id = first.project_id) AS weight,
           (SELECT count(*)::int FROM jobs_agingrule AS lower WHERE lower.base <= rule.base) AS tier_class
      FROM first JOIN jobs_agingrule AS rule ON rule.tier = first.priority
     WHERE date_part('epoch', {{now}} - first.eligible_since)
           < least(rule.first_after_seconds, rule.promote_after_seconds, 'infinity'::float8)
       AND NOT EXISTS (SELECT FROM jobs_pauseswitch)
       AND NOT EXISTS (SELECT FROM jobs_servicebreaker WHERE opened_at IS NOT NULL)
       AND NOT EXISTS (
           SELECT FROM jobs_job
            WHERE (project_id, priority) > (first.project_id, first.priority) AND {{claimable}} AND {{of_pool}}
            ORDER BY project_id, priority, eligible_since, id LIMIT 1)
)
SELECT {{claimed_job job}}, token, weight, tier_class
  FROM (
SELECT found.*, sum(bytes) OVER (ROWS UNBOUNDED PRECEDING) AS bytes_until
  FROM (
SELECT job.*, claim.token, alone.weight, alone.tier_class, {{claim_bytes job}} AS bytes
  FROM (SELECT nextval('jobs_fencing_token') AS token) AS claim
 CROSS JOIN alone
 CROSS JOIN LATERAL (
       SELECT id FROM jobs_job
        WHERE project_id = alone.project_id AND priority = alone.priority
          AND (eligible_since, id) >= (alone.eligible_since, alone.id)  -- not past what is dead once more
          AND {{claimable}} AND {{of_pool}}
        ORDER BY eligible_since, id
        LIMIT 2 * %(wanted)s::int + 16) AS near
 CROSS JOIN LATERAL (
       SELECT * FROM jobs_job
        WHERE id = near.id AND {{claimable}} AND {{kind_of_pool}} <> ALL(%(strange)s::text[]) AND {{of_pool}}
          -- The token was drawn before this lock: a claim with a later one may have begun and ended meanwhile.
          AND fencing_token < claim.token
          AND {{not_expired}}
          FOR UPDATE SKIP LOCKED) AS job
 LIMIT %(wanted)s::int) AS found) AS job
 WHERE bytes_until <= %(most_bytes)s::bigint OR bytes_until = bytes  -- the first, however large
