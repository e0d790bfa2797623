-- True for a pause switch, called `switch`, that keeps `job` from a claim; not for project or global switches.
((scope = 'service' AND key = job.service) OR (scope = 'kind' AND key = job.kind)
 OR (scope = 'unknown' AND key = job.kind AND switch.pool = coalesce(job.pool, ''))
 OR (scope = 'refused' AND EXISTS (
         SELECT FROM jobs_refusedcalls AS refused
          WHERE refused.name = key AND refused.stopped_at IS NOT NULL AND {{call_counted}}
            AND refused.probe_job_id IS DISTINCT FROM job.id))
 OR (scope = 'batch' AND key = job.batch_id::text))
