-- Give a waiting job its payload with the values taken from other jobs, and what follows from the payload; log this.
--
-- params  id; project: of the job;
--         payload: JSON text, kept as it is written;
--         service, model, cost, known_cost, credential, lane, target, path, coalesce_key: columns of the job;
--         costs: JSON text
-- locks   the row
-- clock   now(): the transaction's start
-- returns the id; no row if the job has begun or ended, or has its values already
WITH candidate AS MATERIALIZED (
    SELECT id, takes, {{pool_of job}} AS of_pool
      FROM (SELECT id, project_id, kind, takes, %(service)s::text AS service FROM jobs_job
             WHERE id = %(id)s::uuid AND project_id = %(project)s::text AND held AND status IN {{waiting}}
               AND NOT takes ? 'taken'
               FOR UPDATE) AS job
), made AS (
    UPDATE jobs_job AS job
       SET payload = DEFAULT, payload_text = %(payload)s::text, service = %(service)s::text, model = %(model)s::text,
           cost = %(cost)s::int, known_cost = %(known_cost)s::int, costs = %(costs)s::jsonb,
           credential = %(credential)s::text, lane = %(lane)s::text, target = %(target)s::text, path = %(path)s::int,
           coalesce_key = %(coalesce_key)s::text, pool = of_pool,
           takes = candidate.takes || '{"taken": true}', updated_at = {{now}}
      FROM candidate
     WHERE job.id = candidate.id AND job.project_id = %(project)s::text
    RETURNING job.id, project_id, user_id, batch_id, service, scheduled_at
), logged AS (
    INSERT INTO jobs_jobevent (job_id, project_id, user_id, batch_id, service, event_type, message, data)
    SELECT id, project_id, user_id, batch_id, service, 'scheduling', 'it has the values that it takes from other jobs',
           jsonb_build_object('operation', 'take', 'scheduled_at', scheduled_at)
      FROM made
)
SELECT id FROM made
