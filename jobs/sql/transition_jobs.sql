-- Move jobs along one edge of jobs/states.py; log each move and count it in the same statement.
--
-- params  target, sources, needs_lease: the edge;
--         attempt, crash, deferral: 0 or 1, added to the counters;
--         ids, tokens, codes, messages, results: parallel arrays, one entry a job (codes, messages: of its error);
--         delays: likewise, seconds until the job may run (null: at once);
--         data: likewise, the event's data as JSON text;
--         keys: likewise, a new coalesce key of a job that must not leave with the same jobs again (null: unchanged);
--         message: the event's message for jobs whose own message is null;
--         executor, lease: the executor that claims, and for how many seconds (null: the edge is no claim);
--         via: the new `via` of jobs that already have one, such as jobs for a provider batch (null: unchanged);
--         through: a state between the edge's ends that is logged as a step of its own (null: none)
-- locks   the moved rows, in id order, then the counters of this backend alone. Waits for locked rows instead of
--         skipping them: otherwise an operator's click would be lost while an executor has locked the row
-- clock   now(): the transaction's start
-- returns the ids that moved; if a job is left out, its state was not in `sources`, or the lease is not the caller's
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(
        %(ids)s::uuid[], %(tokens)s::bigint[], %(delays)s::float8[], %(codes)s::text[], %(messages)s::text[],
        %(results)s::text[], %(data)s::text[], %(keys)s::text[]
    ) AS t (id, token, delay, code, message, result, data, key)
), candidate AS MATERIALIZED (
    SELECT given.*, job.status AS from_status
      FROM given JOIN jobs_job AS job ON job.id = given.id
     WHERE job.status = ANY(%(sources)s::text[])
       AND (NOT %(needs_lease)s::boolean OR job.fencing_token = given.token)
     ORDER BY job.id
       FOR UPDATE OF job
), moved AS (
    UPDATE jobs_job AS job
       SET status = %(target)s::text,
           retry_count = job.retry_count + %(attempt)s::int,
           crash_count = job.crash_count + %(crash)s::int,
           deferral_count = job.deferral_count + %(deferral)s::int,
           -- The retry window stands still while a limit or an outage holds a job back: otherwise a long wait would
           -- fail the job.
           deferred_seconds = job.deferred_seconds
               + CASE WHEN job.first_attempt_at IS NULL OR job.deferred_since IS NULL THEN 0
                      ELSE greatest(0, extract(epoch FROM {{now}} - job.deferred_since)) END,
           deferred_since = CASE WHEN %(target)s::text = 'rate_limited' THEN {{now}} END,
           scheduled_at = CASE WHEN candidate.delay IS NOT NULL THEN {{now}} + candidate.delay * interval '1 second' END,
           executor = coalesce(%(executor)s::uuid, job.executor),
           fencing_token = CASE WHEN %(executor)s::uuid IS NULL THEN job.fencing_token ELSE candidate.token END,
           lease_expires_at = CASE WHEN %(executor)s::uuid IS NOT NULL
                                   THEN {{now}} + %(lease)s::float8 * interval '1 second'
                                   WHEN %(target)s::text = 'in_progress' THEN job.lease_expires_at END,
           coalesce_key = coalesce(candidate.key, job.coalesce_key),
           via = CASE WHEN job.via IS NOT NULL THEN coalesce(%(via)s::text, job.via) END,
           started_at = CASE WHEN %(target)s::text = 'in_progress' THEN {{now}} ELSE job.started_at END,
           first_attempt_at = CASE WHEN %(target)s::text = 'in_progress' THEN coalesce(job.first_attempt_at, {{now}})
                                   ELSE job.first_attempt_at END,
           finished_at = CASE WHEN %(target)s::text IN {{ended}} THEN {{now}} END,
           -- A job with a partial result keeps its progress: its next attempt goes on from there.
           progress = CASE WHEN %(target)s::text = 'completed' THEN 100
                           WHEN %(target)s::text = 'in_progress' AND {{result_text job}} IS NULL THEN 0 ELSE job.progress END,
           progress_message = CASE WHEN %(target)s::text = 'in_progress' AND {{result_text job}} IS NULL THEN ''
                                   ELSE job.progress_message END,
           -- The result is stored as the payload is, as jsonb or as text: workers of the release before 1.1 go on with
           -- earlier jobs, and with their results.
           result = CASE WHEN job.payload_text IS NULL THEN coalesce(candidate.result::jsonb, job.result) END,
           result_text = CASE WHEN job.payload_text IS NOT NULL THEN coalesce(candidate.result, job.result_text) END,
           last_error_code = coalesce(candidate.code, job.last_error_code),
           last_error_message = CASE WHEN candidate.code IS NULL THEN job.last_error_message
                                     ELSE coalesce(candidate.message, '') END,
           updated_at = {{now}}
      FROM candidate
     WHERE job.id = candidate.id
    RETURNING job.id, job.project_id, job.user_id, job.batch_id, job.service, job.scheduled_at, job.retry_count,
              job.crash_count, job.deferral_count, candidate.from_status AS left_status, candidate.code,
              candidate.message, candidate.data, job.via
), logged AS (
    INSERT INTO jobs_jobevent (job_id, project_id, user_id, batch_id, service, event_type, from_status, to_status,
                               message, data)
    -- Where there are two steps, the first gets the given data, which name the executor of a claim.
    SELECT id, project_id, user_id, batch_id, service, 'state_change', left_status, %(through)s::text,
           coalesce(message, %(message)s::text),
           CASE WHEN via IS NULL THEN data::jsonb
                ELSE coalesce(data::jsonb, '{}') || jsonb_build_object('via', via) END
      FROM moved
     WHERE %(through)s::text IS NOT NULL
     UNION ALL
    SELECT id, project_id, user_id, batch_id, service, 'state_change', coalesce(%(through)s::text, left_status),
           %(target)s::text, coalesce(message, %(message)s::text),
           -- Log the changes besides the state: jobs/features/recovery/event_fold.py rebuilds the row from them.
           CASE WHEN %(through)s::text IS NOT NULL THEN NULL
                WHEN scheduled_at IS NULL AND code IS NULL AND 0 = %(attempt)s::int + %(crash)s::int + %(deferral)s::int
                THEN data::jsonb
                ELSE coalesce(data::jsonb, '{}') || jsonb_strip_nulls(jsonb_build_object(
                         'scheduled_at', scheduled_at,
                         'error_code', code, 'error_message', CASE WHEN code IS NOT NULL THEN message END,
                         'retry_count', CASE WHEN %(attempt)s::int = 1 THEN retry_count END,
                         'crash_count', CASE WHEN %(crash)s::int = 1 THEN crash_count END,
                         'deferral_count', CASE WHEN %(deferral)s::int = 1 THEN deferral_count END)) END
      FROM moved
), counted AS (
    INSERT INTO jobs_jobcount AS total
           (project_id, batch_id, shard, {{counts}})
    SELECT project_id, coalesce(batch_id, '00000000-0000-0000-0000-000000000000'), pg_backend_pid(),
           {{count_moves}}
      FROM moved
     GROUP BY GROUPING SETS ((project_id), (project_id, batch_id))
    HAVING GROUPING(batch_id) = 1 OR batch_id IS NOT NULL
     ORDER BY 1, 2
    {{add_counts}}
)
SELECT id FROM moved
