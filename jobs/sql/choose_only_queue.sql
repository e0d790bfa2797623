-- Choose and lock up to `wanted` jobs by age, if only one queue has jobs. A queue here is the jobs of one project and
-- tier that are in no lane. choose_jobs.sql would choose the same jobs, but takes twice as long, because it scores and
-- sorts the jobs that it reads. The variant `pooled`, with the parameter `pool`, chooses among the jobs of that pool.
--
-- params  wanted: most jobs to choose;
--         strange: kinds, each with its pool, that this executor leaves to others;
--         most_bytes: the most bytes that the payloads and partial results of all chosen jobs may have together
-- locks   the chosen rows, SKIP LOCKED: never waits
-- clock   now(): the transaction's start
-- returns rows as choose_jobs.sql does. No row where age may not be the right order: a second queue has jobs, or
--         anything is paused. Likewise if a target does not answer, or a job has waited long enough for its score to
--         rise
WITH first AS MATERIALIZED (
    -- The very first job of the queues. Order by all columns of the ready index, as in choose_jobs.sql.
    SELECT project_id, priority, eligible_since, id FROM jobs_job
     WHERE {{claimable}} AND {{of_pool}}
     ORDER BY project_id, priority, eligible_since, id LIMIT 1
), alone AS MATERIALIZED (
    -- This job with its project's weight and its own class; no row if the order may not be by age alone.
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
          AND (eligible_since, id) >= (alone.eligible_since, alone.id)  -- skips dead index entries
          AND {{claimable}} AND {{of_pool}}
        ORDER BY eligible_since, id
        LIMIT 2 * %(wanted)s::int + 16) AS near
 CROSS JOIN LATERAL (
       SELECT * FROM jobs_job
        WHERE id = near.id AND {{claimable}} AND {{kind_of_pool}} <> ALL(%(strange)s::text[]) AND {{of_pool}}
          -- The token was drawn before this lock: a claim with a later token may have begun and ended meanwhile.
          AND fencing_token < claim.token
          AND {{not_expired}}
          FOR UPDATE SKIP LOCKED) AS job
 LIMIT %(wanted)s::int) AS found) AS job
 WHERE bytes_until <= %(most_bytes)s::bigint OR bytes_until = bytes  -- the first job, however large
