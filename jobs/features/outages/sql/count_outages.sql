-- Count failures that are the fault of targets, and open the breakers of the projects with enough such failures.
--
-- A project's breaker opens by its own failures alone: by many in a row, or by fewer where the target is out for
-- another project, too. The failures must come from several calls: otherwise one bad job would be enough.
--
-- params  services, targets, projects, jobs, calls, paths, errors: parallel arrays, one entry a failed job, where
--         jobs that left together have the same call;
--         threshold: failures that open a breaker;
--         seconding: failures that open a breaker where another project's breaker of the target is open;
--         least_calls: how many different calls must have failed;
--         most_calls, most_paths: bounds of what is remembered;
--         first_probe: seconds from opening to the first probe
-- locks   the breakers' rows, in order of their keys
-- clock   now(): the transaction's start
-- returns the jobs whose failure spends no attempt, because their target is out. Probes, and jobs that open a breaker
--         again, are not among them: a job that always fails has to come to an end
WITH failure AS MATERIALIZED (
    SELECT * FROM unnest(%(services)s::text[], %(targets)s::text[], %(projects)s::text[], %(jobs)s::uuid[],
                         %(calls)s::uuid[], %(paths)s::int[], %(errors)s::text[])
                  AS given (service, target, project_id, job_id, call_id, path, error)
), before AS MATERIALIZED (
    SELECT * FROM jobs_servicebreaker AS breaker
     WHERE (service, target, project_id) IN (SELECT service, target, project_id FROM failure)
     ORDER BY service, target, project_id
       FOR UPDATE
), judged AS MATERIALIZED (
    SELECT failure.*, before.opened_at, before.closed_at, path = ANY(coalesce(spared, '{}')) AS is_spared,
           job_id IS NOT DISTINCT FROM probe_job_id AS is_probe
      FROM failure LEFT JOIN before USING (service, target, project_id)
), evidence AS MATERIALIZED (
    SELECT service, target, project_id, count(*) FILTER (WHERE NOT is_spared) AS failures, bool_or(is_probe) AS probed,
           array_agg(call_id) FILTER (WHERE NOT is_spared) AS calls, max(error) AS error,
           array_agg(path) FILTER (WHERE NOT is_spared) AS paths,
           CASE WHEN EXISTS (SELECT FROM jobs_servicebreaker AS other
                              WHERE other.service = judged.service AND other.target = judged.target
                                AND other.project_id <> judged.project_id AND other.opened_at IS NOT NULL)
                THEN %(seconding)s::int ELSE %(threshold)s::int END AS enough
      FROM judged
     GROUP BY service, target, project_id
), summed AS (
    SELECT service, target, project_id, evidence.error, evidence.enough,
           coalesce(before.failures, 0) + evidence.failures AS failures,
           ARRAY(SELECT DISTINCT unnest(before.calls || evidence.calls) LIMIT %(most_calls)s::int) AS calls,
           ARRAY(SELECT DISTINCT unnest(before.paths || evidence.paths) LIMIT %(most_paths)s::int) AS paths
      FROM evidence LEFT JOIN before USING (service, target, project_id)
), counted AS (
    INSERT INTO jobs_servicebreaker AS breaker
           (service, target, project_id, failures, calls, paths, spared, probed, last_error, opened_at, next_probe_at)
    SELECT service, target, project_id, failures, calls, paths, '{}', '{}', error,
           CASE WHEN is_enough THEN {{now}} END,
           CASE WHEN is_enough THEN {{now}} + %(first_probe)s::float8 * interval '1 second' END
      FROM (SELECT *, failures >= enough AND cardinality(calls) >= %(least_calls)s::int AS is_enough
              FROM summed) AS new
     ORDER BY service, target, project_id
    ON CONFLICT (service, target, project_id) DO UPDATE
       SET failures = excluded.failures, calls = excluded.calls, paths = excluded.paths,
           last_error = excluded.last_error,
           opened_at = coalesce(breaker.opened_at, excluded.opened_at),
           next_probe_at = coalesce(breaker.next_probe_at, excluded.next_probe_at),
           -- Forget a failed probe. choose_stranded does not park the job of `probe_job_id`: if its id stayed here, the
           -- same job would go again at once.
           probe_job_id = CASE WHEN (SELECT probed FROM evidence
                                      WHERE evidence.service = breaker.service AND evidence.target = breaker.target
                                        AND evidence.project_id = breaker.project_id)
                               THEN NULL ELSE breaker.probe_job_id END,
           updated_at = {{now}}
    RETURNING service, target, project_id, opened_at IS NOT NULL AS is_open
)
SELECT job_id FROM judged JOIN counted USING (service, target, project_id)
 WHERE is_open AND NOT is_spared AND NOT is_probe AND (judged.opened_at IS NOT NULL OR judged.closed_at IS NULL)
