-- A pause switch, by its scope and key, that keeps a job from being claimed; not its project's nor everybody's.
((scope = 'service' AND key = job.service) OR (scope IN ('kind', 'unknown') AND key = job.kind)
 OR (scope = 'batch' AND key = job.batch_id::text))
