-- Give waiting jobs the work of later submissions with their unique keys, and log it. Their age is kept.
--
-- Arrays are parallel: one entry a job; an array may be null if each of its entries is null.
--
-- params  project;
--         actor: the actor that the event names;
--         ids, services, models, costs, known_costs, credentials, lanes, targets, paths, coalesce_keys, priorities,
--         retry_policies, expires_ats: columns of the job;
--         costs_by_unit: JSON;
--         scheduled_ats, delays: a time or, instead, seconds from now (debounced: at most to the longest wait);
--         payloads: one JSON array, an element a job, kept as it is written there
-- locks   the rows, in id order; waits rather than skips
-- clock   now(): the transaction's start
-- returns the ids of the jobs changed; a job whose id is missing was claimed or has ended meanwhile
WITH given AS MATERIALIZED (
    SELECT t.*, CASE WHEN coalesce(at, {{now}} + delay * interval '1 second') > {{now}}
                     THEN coalesce(at, {{now}} + delay * interval '1 second') END AS due
      FROM ROWS FROM (
        unnest(%(ids)s::uuid[], %(services)s::text[], %(models)s::text[], %(costs)s::int[], %(known_costs)s::int[],
               %(costs_by_unit)s::text[], %(credentials)s::text[], %(lanes)s::text[], %(targets)s::text[],
               %(paths)s::int[], %(coalesce_keys)s::text[], %(priorities)s::text[], %(retry_policies)s::text[],
               %(scheduled_ats)s::timestamptz[], %(delays)s::float8[], %(expires_ats)s::timestamptz[]),
        json_array_elements(%(payloads)s::json)
      ) AS t (id, service, model, cost, known_cost, costs, credential, lane, target, path, coalesce_key, priority,
              retry_policy, at, delay, expires_at, payload)
), candidate AS MATERIALIZED (
    SELECT job.id, job.project_id, job.batch_id, job.kind, job.pool, job.last_error_code, job.last_error_message,
           job.debounce_until
      FROM jobs_job AS job JOIN given USING (id)
     WHERE job.project_id = %(project)s::text AND job.status = 'queued' AND job.fencing_token = 0
       AND job.first_attempt_at IS NULL AND job.via IS NULL
     ORDER BY job.id
       FOR UPDATE OF job
), made AS MATERIALIZED (
    SELECT job.*, {{held_otherwise job}}
               OR EXISTS (SELECT FROM jobs_dependency WHERE owner_id IN (job.id, job.batch_id)) AS is_held,
           {{pool_of job}} AS of_pool
      FROM (SELECT given.*, project_id, batch_id, kind, pool, last_error_code, last_error_message,
                   CASE WHEN least(due, debounce_until) > {{now}} THEN least(due, debounce_until) END AS starts
              FROM candidate JOIN given USING (id)) AS job
), moved AS (
    UPDATE jobs_job AS job
       SET payload = DEFAULT, payload_text = made.payload::text, takes = NULL, service = made.service, model = made.model, cost = made.cost,
           known_cost = made.known_cost, costs = made.costs::jsonb, credential = made.credential, lane = made.lane,
           target = made.target, path = made.path, coalesce_key = made.coalesce_key, priority = made.priority,
           retry_policy_id = made.retry_policy, expires_at = made.expires_at, held = made.is_held, pool = made.of_pool,
           fallback_step = 0, fallback_reason = '', fallback_at = NULL, fallback_on_outage = false,
           scheduled_at = made.starts,
           eligible_since = coalesce(made.starts, least(job.eligible_since, {{now}})),
           updated_at = {{now}}
      FROM made
     WHERE job.id = made.id
    RETURNING job.id, job.project_id, job.user_id, job.batch_id, job.service, job.scheduled_at
), logged AS (
    INSERT INTO jobs_jobevent (job_id, project_id, user_id, batch_id, service, event_type, message, data)
    SELECT id, project_id, user_id, batch_id, service, 'scheduling',
           'it has the work of a later submission with its unique key',
           jsonb_build_object('operation', 'replace', 'scheduled_at', scheduled_at, 'actor', %(actor)s::text)
      FROM moved
)
SELECT id FROM moved
