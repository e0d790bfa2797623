-- Whether `refused`, a row of refused calls, counts the calls of a job.
(refused.project_id = job.project_id AND refused.service = job.service
 AND (refused.credential = coalesce(job.credential, '')
      OR strpos(job.lane, '/' || refused.credential || '/') > 0 AND refused.credential LIKE 'pool:%%')
 AND (refused.model = '' OR refused.model = job.model))
