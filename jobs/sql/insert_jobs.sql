-- Insert jobs as queued; log and count them in the same statement.
--
-- Arrays are parallel: one entry a job, or null instead of an array whose entries would all be null.
--
-- params  project, batch, submitted_by, held: the same for all jobs;
--         ids, user_ids, expires_ats, origins, idempotency_keys, models, retry_policies, known_costs, credentials,
--         lanes, coalesce_keys, complete_bys, vias, unique_keys: columns of the job;
--         kinds, services, call_types, costs, priorities, targets, paths: likewise, or one entry for all;
--         scheduled_ats, delays: when the job may run, as a time or as seconds from now;
--         effect_keys: null if the effect key is the job's id;
--         costs_by_unit: JSON;
--         waits: JSON of the jobs and batches that the job depends on, so that it is held;
--         ended_batches: JSON of the ended batch, for jobs that are a batch's callback;
--         traceparents: the traceparent of a traced submission, kept in the log;
--         debounces: seconds, the longest wait of a debounced job;
--         payloads: one JSON array, an element a job, stored with its text unchanged
-- order   by idempotency keys: otherwise two statements with the same keys could deadlock. Jobs with unique keys go by
--         their ids, so that the first job of a key is inserted. A project's batches with unique keys are stored one by
--         one
-- locks   only keys of the unique indexes: waits for another insert of the same key to end
-- clock   now(): the transaction's start
-- returns the ids that were not inserted, because a job with the same idempotency key exists, or an unfinished job with
--         the same unique key
WITH given AS MATERIALIZED (
    SELECT id, payload, user_id, idempotency_key, effect_key, model, retry_policy, expires_at, origin,
           known_cost, costs, credential, lane, coalesce_key, complete_by, via, waits, ended_batch, traceparent,
           unique_key, debounce,
           coalesce(kind, (%(kinds)s::text[])[1]) AS kind, coalesce(service, (%(services)s::text[])[1]) AS service,
           coalesce(call_type, (%(call_types)s::text[])[1]) AS call_type, coalesce(cost, (%(costs)s::int[])[1]) AS cost,
           coalesce(priority, (%(priorities)s::text[])[1]) AS priority,
           coalesce(target, (%(targets)s::text[])[1]) AS target, coalesce(path, (%(paths)s::int[])[1]) AS path,
           CASE WHEN coalesce(at, {{now}} + delay * interval '1 second') > {{now}}
                THEN coalesce(at, {{now}} + delay * interval '1 second') END AS due
      FROM ROWS FROM (
        unnest(%(ids)s::uuid[], %(kinds)s::text[], %(services)s::text[], %(models)s::text[], %(call_types)s::text[],
               %(costs)s::int[], %(priorities)s::text[], %(user_ids)s::uuid[], %(idempotency_keys)s::text[],
               %(effect_keys)s::text[], %(retry_policies)s::text[], %(scheduled_ats)s::timestamptz[],
               %(delays)s::float8[], %(expires_ats)s::timestamptz[], %(origins)s::uuid[],
               %(known_costs)s::int[], %(credentials)s::text[], %(lanes)s::text[], %(coalesce_keys)s::text[],
               %(targets)s::text[], %(paths)s::int[], %(costs_by_unit)s::text[],
               %(complete_bys)s::timestamptz[], %(vias)s::text[], %(waits)s::text[],
               %(ended_batches)s::text[], %(traceparents)s::text[], %(unique_keys)s::text[], %(debounces)s::float8[]),
        json_array_elements(%(payloads)s::json)
      ) AS t (id, kind, service, model, call_type, cost, priority, user_id, idempotency_key, effect_key, retry_policy,
              at, delay, expires_at, origin, known_cost, credential, lane, coalesce_key, target, path,
              costs, complete_by, via, waits, ended_batch, traceparent, unique_key, debounce, payload)
), added AS (
    INSERT INTO jobs_job (
           id, project_id, user_id, batch_id, kind, service, model, call_type, cost, priority, status, held, payload_text,
           idempotency_key, effect_key, retry_policy_id, scheduled_at, eligible_since, expires_at, origin_id, created_at,
           known_cost, costs, credential, lane, coalesce_key, target, path, complete_by, via, ended_batch,
           unique_key, debounce_until, pool)
    SELECT id, %(project)s::text, user_id, %(batch)s::uuid, kind, service, model, call_type, cost, priority, 'queued',
           %(held)s::boolean OR waits IS NOT NULL
                             OR service = ANY(ARRAY(SELECT key FROM jobs_pauseswitch WHERE scope = 'service'))
                             OR kind = ANY(ARRAY(SELECT key FROM jobs_pauseswitch WHERE scope = 'kind'))
                             OR kind = ANY(ARRAY(SELECT key FROM jobs_pauseswitch WHERE scope = 'unknown'))
                            AND coalesce({{pool_of job}}, '') IN (SELECT pool FROM jobs_pauseswitch AS switch
                                                                   WHERE scope = 'unknown' AND key = job.kind),
           payload::text, idempotency_key, coalesce(effect_key, id::text), retry_policy, due,
           -- A time after created_at says that the job, held by a dependency, has not begun to wait for its turn.
           coalesce(due, CASE WHEN waits IS NOT NULL THEN {{now}} + interval '1 microsecond' ELSE {{now}} END),
           expires_at, origin, {{now}},  -- the log's clock: the column's default is the statement's
           known_cost, costs::jsonb, credential, lane, coalesce_key, target, path, complete_by, via, ended_batch::jsonb,
           unique_key, {{now}} + debounce * interval '1 second', {{pool_of job}}
      FROM (SELECT given.*, %(project)s::text AS project_id FROM given) AS job
     ORDER BY CASE WHEN unique_key IS NULL THEN idempotency_key END COLLATE "C", id
        ON CONFLICT DO NOTHING
    RETURNING id, user_id, service, scheduled_at, origin_id
), logged AS (
    INSERT INTO jobs_jobevent (job_id, project_id, user_id, batch_id, service, event_type, to_status, message, data)
    SELECT id, %(project)s::text, added.user_id, %(batch)s::uuid, added.service, 'state_change', 'queued',
           %(submitted_by)s::text,
           CASE WHEN scheduled_at IS NOT NULL OR origin_id IS NOT NULL OR waits IS NOT NULL OR traceparent IS NOT NULL
                THEN jsonb_strip_nulls(jsonb_build_object('scheduled_at', scheduled_at, 'origin', origin_id,
                                                          'waits_for', waits::jsonb, 'traceparent', traceparent)) END
      FROM added JOIN given USING (id)
), counted AS (
    INSERT INTO jobs_jobcount AS total (project_id, batch_id, shard, queued)
    SELECT %(project)s::text, scope.batch_id, pg_backend_pid(), (SELECT count(*) FROM added)
      FROM (SELECT uuid '00000000-0000-0000-0000-000000000000' AS batch_id
             UNION SELECT %(batch)s::uuid WHERE %(batch)s::uuid IS NOT NULL) AS scope
     ORDER BY scope.batch_id
    {{add_counts}}
)
SELECT id FROM given WHERE id NOT IN (SELECT id FROM added)
