-- A pause switch, called `switch`, that keeps a job from being claimed; not its project's nor everybody's.
((scope = 'service' AND key = job.service) OR (scope = 'kind' AND key = job.kind)
 OR (scope = 'unknown' AND key = job.kind AND switch.pool = coalesce(job.pool, ''))
 OR (scope = 'batch' AND key = job.batch_id::text))
