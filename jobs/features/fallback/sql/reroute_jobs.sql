-- Let waiting jobs go another way, with new services, credentials, lanes and costs; log each. They go live then.
--
-- Running jobs stay as they are, and so do jobs that have gone on meanwhile: they are no longer at their `at_steps`.
--
-- params  ids, projects, reasons, services, models, credentials, targets, paths, lanes, costs, known_costs, on_outages,
--         messages: parallel arrays, an entry a job, as all others are;
--         at_steps, to_steps: the step that the job is at, and the new one;
--         costs_by_unit, data: JSON;
--         afters: seconds after which the job goes on again if it still waits for a limit (null: never)
-- locks   the rows, in id order; waits rather than skips
-- clock   now(): the transaction's start
-- returns id and status of those that moved
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(
        %(ids)s::uuid[], %(projects)s::text[], %(at_steps)s::int[], %(to_steps)s::int[], %(reasons)s::text[], %(services)s::text[],
        %(models)s::text[], %(credentials)s::text[], %(targets)s::text[], %(paths)s::int[], %(lanes)s::text[],
        %(costs)s::int[], %(known_costs)s::int[], %(costs_by_unit)s::text[], %(afters)s::float8[],
        %(on_outages)s::boolean[], %(messages)s::text[], %(data)s::text[]
    ) AS t (id, project, at_step, to_step, reason, service, model, credential, target, path, lane, cost, known_cost, costs,
            after, on_outage, message, data)
), candidate AS MATERIALIZED (
    SELECT job.id FROM jobs_job AS job JOIN given USING (id)
     WHERE job.status IN {{waiting}} AND job.project_id = given.project AND job.fallback_step = given.at_step
     ORDER BY job.id
       FOR UPDATE OF job
), moved AS (
    UPDATE jobs_job AS row
       SET fallback_step = given.to_step, fallback_reason = given.reason,
           fallback_at = {{now}} + given.after * interval '1 second', fallback_on_outage = given.on_outage,
           service = given.service, model = given.model, credential = given.credential, target = given.target,
           path = given.path, lane = given.lane, cost = given.cost, known_cost = given.known_cost,
           costs = given.costs::jsonb, coalesce_key = NULL, via = NULL,
           pool = (SELECT {{pool_of job}}
                     FROM (SELECT given.service, row.kind, row.project_id) AS job (service, kind, project_id)),
           updated_at = {{now}}
      FROM candidate JOIN given USING (id)
     WHERE row.id = candidate.id
    RETURNING row.id, row.project_id, row.user_id, row.batch_id, row.service, row.status, given.message, given.data
), logged AS (
    INSERT INTO jobs_jobevent (job_id, project_id, user_id, batch_id, service, event_type, message, data)
    SELECT id, project_id, user_id, batch_id, service, 'scheduling', message, data::jsonb FROM moved
)
SELECT id, status FROM moved ORDER BY id
