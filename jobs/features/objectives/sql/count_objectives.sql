-- Count a part of the job log for the objectives.
--
-- A job is due once, at its deadline, as soon as the log tells that it has begun to wait. It has met the objective when
-- the log tells that it started or ended by then. A job whose log has no such event by its deadline has missed the
-- objective; the queue is not read for this. A job that is cancelled before its deadline is no longer due.
--
-- A job that was not scheduled begins to wait when it is submitted. A scheduled job begins at the first event that
-- shows that its time has come, or that it runs: it may have been given another time meanwhile.
--
-- params  after, upto: the ids of the part, which the caller has taken with advance_flow.sql
-- locks   the samples added to, in the order of their keys; the caller holds the cursor's row already
-- clock   none: an event's own time says when it was
-- returns one row: how many samples were added to
WITH objective AS MATERIALIZED (
    SELECT id, aim, project_id, kind, service, counts_from, coalesce(within_seconds, 0) * interval '1 second' AS within
      FROM jobs_objective
     WHERE counts_from IS NOT NULL
), event AS MATERIALIZED (
    SELECT id, job_id, created_at, from_status IS NULL AND event_type = 'state_change' AS is_submitted,
           event_type = 'scheduling' AS is_freed, coalesce(to_status, '') AS to_status
      FROM jobs_jobevent AS event
     WHERE id > %(after)s::bigint AND id <= %(upto)s::bigint
       AND (event_type = 'state_change'
                AND (from_status IS NULL OR to_status IN ('in_progress', 'completed', 'failed', 'cancelled'))
            OR event_type = 'scheduling' AND data @> '{"scheduled_at": null}')
       AND EXISTS (SELECT FROM objective WHERE coalesce(objective.project_id, event.project_id) = event.project_id)
), told AS MATERIALIZED (
    SELECT event.*, job.*,
           job.was_scheduled
           AND EXISTS (SELECT FROM jobs_jobevent AS earlier
                        WHERE earlier.job_id = event.job_id AND earlier.created_at >= job.submitted_at
                          AND earlier.id < event.id
                          AND (earlier.to_status = 'in_progress'
                               OR earlier.event_type = 'scheduling' AND earlier.data @> '{"scheduled_at": null}'))
           AS was_freed
      FROM event
     CROSS JOIN LATERAL (
           SELECT job.project_id, job.kind, {{submitted_service job}} AS service, job.created_at AS submitted_at,
                  job.first_attempt_at, least(job.eligible_since, job.first_attempt_at) AS began,
                  job.eligible_since > job.created_at AS was_scheduled
             FROM jobs_job AS job
            WHERE job.id = event.job_id
            LIMIT 1) AS job  -- by its key: a join could read all jobs for a large part
), judged AS (
    SELECT objective.id AS objective_id, objective.aim, told.*, objective.aim = 'succeed' AS is_of_end,
           CASE objective.aim WHEN 'succeed' THEN told.created_at ELSE told.began + objective.within END AS deadline,
           CASE WHEN was_scheduled THEN (is_freed OR to_status = 'in_progress') AND NOT was_freed
                ELSE is_submitted END AS begins,
           was_freed OR NOT was_scheduled AS has_begun
      FROM told
      JOIN objective ON coalesce(objective.project_id, told.project_id) = told.project_id
                    AND objective.kind IN ('', told.kind) AND objective.service IN ('', told.service)
                    AND told.submitted_at > objective.counts_from
), counted AS (
    SELECT objective_id AS id, deadline,
           CASE WHEN is_of_end THEN (to_status IN ('completed', 'failed'))::int
                ELSE begins::int - (to_status = 'cancelled' AND has_begun AND created_at < deadline
                                    AND (aim = 'end' OR first_attempt_at IS NULL))::int END AS due,
           CASE aim WHEN 'start' THEN to_status = 'in_progress' AND created_at = first_attempt_at
                                      AND created_at <= deadline
                    WHEN 'end' THEN to_status IN ('completed', 'failed') AND has_begun AND created_at <= deadline
                    ELSE to_status = 'completed' END::int AS met
      FROM judged
), kept AS (
    {{add_samples}}
)
SELECT count(*)::int FROM kept
