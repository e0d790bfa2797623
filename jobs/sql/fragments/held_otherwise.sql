-- Whether a pause switch or a budget without room holds a job.
(EXISTS (SELECT FROM jobs_pauseswitch AS switch
          WHERE {{held_back job}}
             OR (scope = 'unfit' AND key = job.kind AND job.last_error_code = 'invalid_payload'))
 OR EXISTS (SELECT FROM jobs_budgetwait WHERE job_id = job.id))
