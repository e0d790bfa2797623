-- The columns of a job that an executor needs, named as in ClaimedJob. Each statement adds token, weight and class.
job.id, job.project_id AS project, job.user_id, job.batch_id, job.kind, {{payload_text job}} AS payload, job.effect_key,
job.retry_policy_id AS retry_policy, job.retry_count, job.crash_count,
greatest(0, coalesce(extract(epoch FROM {{now}} - job.first_attempt_at), 0)::float8 - job.deferred_seconds) AS window_used,
job.service, job.call_type, job.model, job.credential, job.cost, job.known_cost, job.lane, job.coalesce_key,
{{result_text job}} AS partial, job.status AS was,
greatest(0, extract(epoch FROM {{now}} - job.eligible_since)::float8) AS waited,
extract(epoch FROM {{now}})::float8 AS claimed_at, job.target, job.path,
job.priority, job.costs::text AS costs,
job.fallback_step, job.fallback_reason, job.ended_batch::text AS ended_batch
