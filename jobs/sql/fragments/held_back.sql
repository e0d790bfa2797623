-- True for a pause switch, called `switch`, that keeps `job` from a claim; not for project or global switches.
((scope = 'service' AND key = job.service) OR (scope = 'kind' AND key = job.kind)
 OR (scope = 'unknown' AND key = job.kind AND switch.pool = coalesce(job.pool, ''))
 OR (scope = 'refused' AND EXISTS (
         SELECT FROM jobs_refusedcalls AS refused
          WHERE refused.name = key AND refused.stopped_at IS NOT NULL AND refused.project_id = job.project_id
            AND refused.service = job.service
            AND (refused.credential = coalesce(job.credential, '')
                 OR strpos(job.lane, '/' || refused.credential || '/') > 0 AND refused.credential LIKE 'pool:%%')
            AND (refused.model = '' OR refused.model = job.model)
            AND refused.probe_job_id IS DISTINCT FROM job.id))
 OR (scope = 'batch' AND key = job.batch_id::text))
