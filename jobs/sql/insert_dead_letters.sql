-- Write the dead letters of jobs that have just failed for good.
--
-- params  letters (ids of the dead letters), ids (of the jobs), codes, classes, messages, statuses, remedies,
--         fingerprints: parallel arrays, one entry a job
-- locks   none: the caller moved these rows in this transaction
-- clock   statement_timestamp(), by the column's default
-- returns the ids of the dead letters
INSERT INTO jobs_deadletter (
       id, job_id, project_id, batch_id, kind, service, payload, payload_text, error_code, error_class, error_message, http_status,
       remediation, attempts, retry_count, crash_count, fingerprint)
SELECT given.letter, job.id, job.project_id, job.batch_id, job.kind, job.service, job.payload, job.payload_text, given.code,
       given.class, given.message, given.status, given.remedy,
       (SELECT coalesce(jsonb_agg(jsonb_build_object(
                   'at', event.created_at, 'from', event.from_status, 'to', event.to_status, 'message', event.message)
                   || coalesce(event.data, '{}') ORDER BY event.id), '[]')
          FROM jobs_jobevent AS event
         WHERE event.job_id = job.id AND event.event_type = 'state_change'
           AND (event.from_status IN {{running}} AND event.to_status IN ('retried', 'failed')
                OR event.to_status = 'failed')),
       job.retry_count, job.crash_count, given.fingerprint
  FROM unnest(%(letters)s::uuid[], %(ids)s::uuid[], %(codes)s::text[], %(classes)s::text[], %(messages)s::text[],
              %(statuses)s::int[], %(remedies)s::text[], %(fingerprints)s::text[])
       AS given (letter, id, code, class, message, status, remedy, fingerprint)
  JOIN jobs_job AS job ON job.id = given.id
RETURNING id
