-- Count jobs from before an objective was made, as count_objectives.sql would have counted them. Only the newest jobs
-- are looked at; a job counts if its deadline has passed.
--
-- params  objective: its id; most: jobs looked at, the newest; settle (seconds): jobs whose deadlines passed in that time
--         are left out, as events that met them may be uncommitted
-- locks   the samples added to, in the order of their keys
-- clock   none: up to the objective's counts_from
-- returns one row: how many samples were added to
WITH objective AS MATERIALIZED (
    SELECT id, aim, project_id, kind, service, counts_from, coalesce(within_seconds, 0) * interval '1 second' AS within,
           counts_from - %(settle)s::float8 * interval '1 second' AS upto
      FROM jobs_objective
     WHERE id = %(objective)s::bigint
), judged AS (
    SELECT objective.id, objective.aim, objective.upto, job.status, job.first_attempt_at, job.finished_at,
           least(job.eligible_since, job.first_attempt_at) AS began,
           CASE objective.aim WHEN 'succeed' THEN job.finished_at
                ELSE least(job.eligible_since, job.first_attempt_at) + objective.within END AS deadline
      FROM objective
      JOIN jobs_job AS job ON coalesce(objective.project_id, job.project_id) = job.project_id
                          AND objective.kind IN ('', job.kind) AND objective.service IN ('', {{submitted_service job}})
                          AND job.created_at <= objective.counts_from
     WHERE job.id >= coalesce((SELECT id FROM jobs_job ORDER BY id DESC OFFSET %(most)s::int LIMIT 1),
                              '00000000-0000-0000-0000-000000000000')
), counted AS (
    SELECT id, deadline, 1 AS due,
           CASE aim WHEN 'start' THEN coalesce(first_attempt_at <= deadline, false)
                    WHEN 'end' THEN status IN ('completed', 'failed') AND finished_at <= deadline
                    ELSE status = 'completed' END::int AS met
      FROM judged
     WHERE deadline <= upto
       AND CASE aim WHEN 'succeed' THEN status IN ('completed', 'failed')
                ELSE NOT coalesce(status = 'cancelled' AND finished_at < deadline
                                      AND (aim = 'end' OR first_attempt_at IS NULL)
                                  OR first_attempt_at IS NULL AND finished_at < began, false) END
), kept AS (
    {{add_samples}}
)
SELECT count(*)::int FROM kept
