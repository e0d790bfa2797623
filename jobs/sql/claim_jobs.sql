-- Claim up to `wanted` jobs in the order of jobs.md: class, then turns between projects, then score, then age.
--
-- Inside a project and tier the ready index is first-come, so heads suffice: some rows are read per project and
-- tier, scored at this instant, merged, and locked in order. Reading more heads than wanted, without locks, lets
-- several executors find work behind each other's claims; locking every head would starve them.
--
-- params  wanted: most jobs to claim; starved: how many of them go first to overdue jobs of lower classes;
--         executor: who claims; lease: seconds;
--         turn_classes, turn_projects, turn_passes: where projects stand in this executor's turns, class by class;
--         turn_nows: where all others do, an entry a class
-- locks   the claimed rows, SKIP LOCKED: never waits; then the counters of this backend alone
-- clock   now(): the transaction's start
-- returns one row a claimed job: what its handler needs, and for the turns the project's weight and the class
WITH RECURSIVE active AS (
    (SELECT project_id FROM jobs_job
      WHERE status = 'queued' AND scheduled_at IS NULL AND NOT held AND crash_count < 2
      ORDER BY project_id LIMIT 1)
    UNION ALL
    SELECT (SELECT job.project_id FROM jobs_job AS job
             WHERE job.project_id > active.project_id
               AND job.status = 'queued' AND job.scheduled_at IS NULL AND NOT job.held AND job.crash_count < 2
             ORDER BY job.project_id LIMIT 1)
      FROM active
     WHERE active.project_id IS NOT NULL
), pause AS MATERIALIZED (
    SELECT scope, key FROM jobs_pauseswitch
), competing AS MATERIALIZED (
    SELECT project.id, project.weight,
           greatest(4, ceil((2.0 * %(wanted)s::int + 16) / count(*) OVER ()))::int AS heads
      FROM active
      JOIN tenancy_project AS project ON project.id = active.project_id
     WHERE NOT EXISTS (SELECT FROM pause WHERE scope = 'global' OR (scope = 'project' AND key = project.id))
), rule AS MATERIALIZED (
    SELECT own.*, next.base AS next_base, next.cap AS next_cap, next.first_after_seconds AS next_first_after_seconds,
           next.first_score AS next_first_score, next.step_seconds AS next_step_seconds
      FROM jobs_agingrule AS own LEFT JOIN jobs_agingrule AS next ON next.tier = own.promote_to
), head AS MATERIALIZED (
    SELECT job.id, job.eligible_since, competing.id AS project_id, competing.weight,
           job.age >= rule.first_after_seconds AS waited_long,
           CASE WHEN job.age >= rule.promote_after_seconds + rule.next_first_after_seconds
                THEN least(rule.next_cap, rule.next_first_score + coalesce(floor(
                         (job.age - rule.promote_after_seconds - rule.next_first_after_seconds)
                         / rule.next_step_seconds), 0))
                WHEN job.age >= rule.promote_after_seconds THEN rule.next_base
                WHEN job.age >= rule.first_after_seconds
                THEN least(rule.cap, rule.first_score + coalesce(floor(
                         (job.age - rule.first_after_seconds) / rule.step_seconds), 0))
                ELSE rule.base END::float8 AS score
      FROM competing
     CROSS JOIN rule
     CROSS JOIN LATERAL (
           SELECT id, eligible_since, extract(epoch FROM now() - eligible_since)::float8 AS age FROM jobs_job
            WHERE project_id = competing.id AND priority = rule.tier
              AND status = 'queued' AND scheduled_at IS NULL AND NOT held AND crash_count < 2
            ORDER BY eligible_since, id
            LIMIT competing.heads) AS job
), classed AS (
    SELECT head.*,
           width_bucket(score, (SELECT array_agg(base::float8 ORDER BY base) FROM jobs_agingrule)) AS class
      FROM head
), turned AS (
    SELECT classed.*,
           waited_long AND classed.class < max(classed.class) OVER () AS overdue,
           -- Where the turn starts, not where it ends: see jobs/turns.py.
           greatest(coalesce(pass.at, 0), coalesce((%(turn_nows)s::float8[])[classed.class], 0))
           + (row_number() OVER (PARTITION BY classed.class, project_id ORDER BY score DESC, eligible_since, id) - 1)
              / weight AS turn
      FROM classed
      LEFT JOIN unnest(%(turn_classes)s::int[], %(turn_projects)s::text[], %(turn_passes)s::float8[])
                AS pass (class, project, at) ON pass.class = classed.class AND pass.project = classed.project_id
), placed AS (
    SELECT turned.*,
           overdue AND row_number() OVER (PARTITION BY overdue ORDER BY class DESC, turn, score DESC, eligible_since, id)
                       <= %(starved)s::int AS first
      FROM turned
), candidate AS MATERIALIZED (
    SELECT job.id, placed.class
      FROM (SELECT id, class FROM placed
             ORDER BY first DESC, class DESC, turn, score DESC, eligible_since, id) AS placed
     CROSS JOIN LATERAL (
           SELECT id FROM jobs_job
            WHERE id = placed.id AND status = 'queued' AND scheduled_at IS NULL AND NOT held
              AND (expires_at IS NULL OR expires_at > now())
              AND NOT EXISTS (SELECT FROM pause
                               WHERE (scope = 'service' AND key = service) OR (scope = 'kind' AND key = kind)
                                  OR (scope = 'batch' AND key = batch_id::text))
              AND NOT EXISTS (SELECT FROM jobs_servicebreaker AS breaker
                               WHERE breaker.service = jobs_job.service AND breaker.opened_at IS NOT NULL
                                 AND breaker.probe_job_id IS DISTINCT FROM jobs_job.id)
              FOR UPDATE SKIP LOCKED) AS job
     LIMIT %(wanted)s::int
), claim AS MATERIALIZED (
    SELECT nextval('jobs_fencing_token') AS token
), moved AS (
    UPDATE jobs_job AS job
       SET status = 'dispatched', executor = %(executor)s::uuid, fencing_token = claim.token,
           lease_expires_at = now() + %(lease)s::float8 * interval '1 second', updated_at = now()
      FROM claim
     WHERE job.id = ANY(ARRAY(SELECT id FROM candidate))
    RETURNING job.*
), logged AS (
    INSERT INTO jobs_jobevent (job_id, project_id, user_id, batch_id, event_type, from_status, to_status, data)
    SELECT id, project_id, user_id, batch_id, 'state_change', 'queued', 'dispatched', detail.data
      FROM moved, (SELECT jsonb_build_object('executor', %(executor)s::uuid, 'fencing_token', token) AS data
                     FROM claim) AS detail
), counted AS (
    INSERT INTO jobs_jobcount AS total (project_id, batch_id, shard, queued, dispatched)
    SELECT project_id, coalesce(batch_id, '00000000-0000-0000-0000-000000000000'), pg_backend_pid(), -count(*), count(*)
      FROM moved
     GROUP BY GROUPING SETS ((project_id), (project_id, batch_id))
    HAVING GROUPING(batch_id) = 1 OR batch_id IS NOT NULL
     ORDER BY 1, 2
    ON CONFLICT (project_id, batch_id, shard) DO UPDATE
       SET queued = total.queued + excluded.queued, dispatched = total.dispatched + excluded.dispatched
)
SELECT moved.id, fencing_token, project_id, user_id, batch_id, kind, payload::text AS payload, effect_key,
       retry_policy_id, retry_count, crash_count,
       coalesce(extract(epoch FROM now() - first_attempt_at), 0)::float8 - deferred_seconds AS window_used,
       competing.weight, candidate.class
  FROM moved JOIN competing ON competing.id = moved.project_id JOIN candidate ON candidate.id = moved.id
