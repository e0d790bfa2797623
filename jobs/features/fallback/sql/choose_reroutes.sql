-- Choose and lock waiting jobs that may go another way: those that have waited too long for a limit, and those whose
-- target is out. A job that is to run later is chosen once its time has come and promote_jobs.sql has moved it, if the
-- target is still out.
--
-- Each of these two searches has an index of its own, which is empty where no job names another way. A probe of an
-- outage is not chosen.
--
-- params  most: jobs found by each of the two searches;
--         kinds: the kinds whose payloads can be read here;
--         left: jobs that are left to other hosts;
--         first, width: look at the jobs whose ids end with one of `width` bytes, `first` being the lowest
-- locks   the chosen rows, SKIP LOCKED
-- clock   now(): the transaction's start
-- returns for each job the reason, and the columns from which its other way is made
WITH waited AS MATERIALIZED (
    SELECT id, 'rate_limited' AS reason FROM jobs_job
     WHERE fallback_at <= {{now}} AND status = 'rate_limited' AND scheduled_at IS NOT NULL AND NOT held
       AND kind = ANY(%(kinds)s::text[]) AND id NOT IN (SELECT unnest(%(left)s::uuid[]))
       AND get_byte(uuid_send(id), 15) BETWEEN %(first)s::int AND %(first)s::int + %(width)s::int - 1
     ORDER BY fallback_at
     LIMIT %(most)s::int
       FOR UPDATE SKIP LOCKED
), cut_off AS MATERIALIZED (
    SELECT job.id, 'unavailable' AS reason
      FROM jobs_servicebreaker AS breaker
     CROSS JOIN LATERAL (
           SELECT id FROM jobs_job
            WHERE service = breaker.service AND project_id = breaker.project_id AND target = breaker.target
              AND fallback_on_outage AND via IS DISTINCT FROM 'batch' AND status IN {{waiting}} AND NOT held
              AND id IS DISTINCT FROM breaker.probe_job_id
              AND (scheduled_at IS NULL OR status = 'rate_limited')
              AND kind = ANY(%(kinds)s::text[]) AND id NOT IN (SELECT unnest(%(left)s::uuid[]))
              AND get_byte(uuid_send(id), 15) BETWEEN %(first)s::int AND %(first)s::int + %(width)s::int - 1
            LIMIT %(most)s::int
              FOR UPDATE SKIP LOCKED) AS job
     WHERE breaker.opened_at IS NOT NULL
     LIMIT %(most)s::int
), chosen AS (
    SELECT DISTINCT ON (id) id, reason FROM (SELECT * FROM cut_off UNION ALL SELECT * FROM waited) AS found
     ORDER BY id, reason DESC
)
SELECT job.id, chosen.reason, job.kind, {{payload_text job}}, job.fallback_step, job.project_id, job.user_id,
       job.service, job.model, job.credential,
       extract(epoch FROM {{now}} - job.eligible_since)::float8 AS waited
  FROM chosen
 CROSS JOIN LATERAL (SELECT * FROM jobs_job WHERE id = chosen.id OFFSET 0) AS job  -- no join, which may read all jobs
 ORDER BY job.id
