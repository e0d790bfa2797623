-- Whether a job is held by a pause switch, by the guard of its batch, or by a budget without room.
-- The last two are no EXISTS, which the planner may answer from a hash of all batches and all that wait for a budget.
(EXISTS (SELECT FROM jobs_pauseswitch AS switch
          WHERE {{held_back job}}
             OR (scope = 'unfit' AND key = job.kind AND job.last_error_code = 'invalid_payload')
             OR (scope = 'sealed' AND job.last_error_code = 'payload_key_missing'
                 AND job.last_error_message = 'its payload is encrypted with the key ' || key
                                              || ', which is not among QUEUEOPS_PAYLOAD_KEYS here'))
 OR (SELECT true FROM jobs_batch AS tried
      WHERE tried.id = job.batch_id AND tried.guard_state = 'trial' AND job.id > tried.trial_until) IS TRUE
 OR (SELECT true FROM jobs_budgetwait WHERE job_id = job.id LIMIT 1) IS TRUE)
