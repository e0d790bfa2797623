-- For each job that ended in a part of the log, note the webhooks that are to be told of it, by their filters.
--
-- A job ends once, and its end is in one part. If that part is read twice, as after a restore, the insert finds the
-- first row and adds none.
--
-- params  after, upto: the ids of the part, which the caller has taken with advance_flow.sql;
--         internal: kinds that nobody hears of, such as the messages themselves;
--         names (of a kind, now or formerly), others (another name of the same handler): parallel arrays
-- order   by the ids of the events
-- locks   the webhooks named, for their key; the caller holds the cursor's row already
-- clock   statement_timestamp(), by the column's default; an event's own time says when its job ended
-- returns one row: how many were noted
WITH hook AS MATERIALIZED (
    SELECT id, project_id, jobs_since, tags, any_tag, outcomes, user_id, batch_id,
           kinds || ARRAY(SELECT other FROM unnest(%(names)s::text[], %(others)s::text[]) AS alike (name, other)
                           WHERE name = ANY(kinds)) AS kinds
      FROM jobs_webhook
     WHERE enabled AND hears_jobs
), ended AS MATERIALIZED (
    SELECT id, job_id, to_status, created_at
      FROM jobs_jobevent AS event
     WHERE id > %(after)s::bigint AND id <= %(upto)s::bigint
       AND event_type = 'state_change' AND to_status IN {{ended}}
       AND EXISTS (SELECT FROM hook WHERE hook.project_id = event.project_id)
), told AS MATERIALIZED (
    SELECT ended.id, ended.to_status, ended.created_at, job.*
      FROM ended
     CROSS JOIN LATERAL (
           SELECT job.id AS job_id, job.project_id, job.kind, job.user_id, job.batch_id
             FROM jobs_job AS job
            WHERE job.id = ended.job_id
            LIMIT 1) AS job  -- by its key: a join could read all jobs for a large part
     WHERE job.kind <> ALL(%(internal)s::text[])
       -- Leave out restored jobs: their end was told before they were archived, and the row that says so was deleted.
       AND NOT EXISTS (SELECT FROM jobs_restoredjob AS restored WHERE restored.job_id = job.job_id)
), noted AS (
    INSERT INTO jobs_webhookjob (webhook_id, job_id, project_id)
    SELECT hook.id, told.job_id, told.project_id
      FROM told
      JOIN hook ON hook.project_id = told.project_id AND told.created_at >= hook.jobs_since
       AND (hook.kinds = '{}' OR told.kind = ANY(hook.kinds))
       AND (hook.outcomes = '{}' OR told.to_status = ANY(hook.outcomes))
       AND (hook.user_id IS NULL OR told.user_id = hook.user_id)
       AND (hook.batch_id IS NULL OR told.batch_id = hook.batch_id)
       AND (hook.any_tag = '{}' OR EXISTS (
           SELECT FROM jobs_tag AS tag WHERE tag.owner_id = told.job_id AND tag.name = ANY(hook.any_tag)))
       AND NOT EXISTS (
           SELECT FROM unnest(hook.tags) AS wanted (name)
            WHERE NOT EXISTS (
                  SELECT FROM jobs_tag AS tag WHERE tag.owner_id = told.job_id AND tag.name = wanted.name))
     ORDER BY told.id
    ON CONFLICT (job_id, webhook_id) DO NOTHING
    RETURNING 1
)
SELECT count(*)::int FROM noted
