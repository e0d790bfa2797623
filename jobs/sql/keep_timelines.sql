-- Copy the logged events of dead letters' jobs into the letters, before the log's days with these events are deleted.
--
-- params  before: only for jobs made before this time; most: how many letters in one statement
-- order   by the job's id, a UUIDv7: its first 48 bits are the milliseconds since 1970, by the clock of the process
--         that made it
-- locks   the letters, SKIP LOCKED
-- clock   none
-- returns the ids of the letters written. Each gets the newest 300 events at most, without progress events
WITH candidate AS MATERIALIZED (
    SELECT id, job_id FROM jobs_deadletter
     WHERE timeline IS NULL
       AND job_id < (lpad(to_hex((extract(epoch FROM %(before)s::timestamptz) * 1000)::bigint), 12, '0')
                     || repeat('0', 20))::uuid
     ORDER BY job_id
     LIMIT %(most)s::int
       FOR UPDATE SKIP LOCKED
)
UPDATE jobs_deadletter AS letter
   SET timeline = jsonb_build_object(
           'events', (SELECT coalesce(jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
                             'id', id, 'created_at', created_at, 'event_type', event_type, 'from_status', from_status,
                             'to_status', to_status, 'message', message, 'data', data)) ORDER BY id), '[]')
                        FROM (SELECT * FROM jobs_jobevent
                               WHERE job_id = candidate.job_id AND event_type <> 'progress'
                               ORDER BY id DESC LIMIT 300) AS event),
           'logged', (SELECT count(*) FROM jobs_jobevent WHERE job_id = candidate.job_id))
  FROM candidate
 WHERE letter.id = candidate.id
RETURNING letter.id
