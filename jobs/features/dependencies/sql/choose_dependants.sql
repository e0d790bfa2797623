-- Look at some of the jobs and batches that wait for others, and say whose waiting is over, and how.
--
-- params  after: the last owner that was looked at before; most: the most owners to look at
-- order   by owner
-- locks   none
-- clock   none
-- returns for each owner looked at: id, project, whether it is a batch, and the verdict: go, let_go (somebody said so),
--         cancel, wait, or over (the owner has ended). Then one job or batch that the owner waited for and that failed,
--         or was cancelled or deleted (null: none). Owners of projects that move, or have moved, wait
WITH owner AS MATERIALIZED (
    SELECT DISTINCT owner_id FROM jobs_dependency
     WHERE owner_id > %(after)s::uuid
     ORDER BY owner_id
     LIMIT %(most)s::int
), wait AS MATERIALIZED (
    SELECT * FROM jobs_dependency WHERE owner_id = ANY(ARRAY(SELECT owner_id FROM owner))
), numbered AS MATERIALIZED (
    SELECT wait.*, row_number() OVER (PARTITION BY on_id, on_batch) AS nth FROM wait
), told AS MATERIALIZED (
    SELECT numbered.*,
           -- Thousands of owners may wait for the same batch: look at it once. Use a window: a join of the outcomes
           -- may compare all with all.
           max(CASE WHEN nth = 1 THEN {{outcome_of numbered}} END) OVER (PARTITION BY on_id, on_batch) AS outcome,
           -- Two subqueries, each by its own index: one subquery with OR would read all jobs for each owner. Neither
           -- is an EXISTS, which the planner may answer from a hash of all unfinished jobs.
           CASE WHEN of_batch
                THEN (SELECT true FROM jobs_job AS own
                       WHERE own.batch_id = owner_id AND own.status IN {{unfinished}} ORDER BY own.status LIMIT 1)
                ELSE (SELECT true FROM jobs_job AS own WHERE own.id = owner_id AND own.status IN {{unfinished}})
           END AS is_open
      FROM numbered
)
SELECT owner_id, min(project_id) AS project, bool_or(of_batch) AS of_batch,
       CASE WHEN NOT EXISTS (SELECT FROM tenancy_project AS project WHERE project.id = min(project_id) AND move = '')
            THEN 'wait'
            WHEN bool_or(is_open) IS NOT TRUE THEN 'over'
            WHEN bool_or(let_go) THEN 'let_go'
            WHEN bool_or(outcome = 'failed' AND on_failure = 'cancel') THEN 'cancel'
            WHEN bool_or(outcome = 'open' OR outcome = 'failed' AND on_failure = 'hold') THEN 'wait'
            ELSE 'go' END AS verdict,
       (array_agg(on_id) FILTER (WHERE outcome = 'failed'))[1] AS failed
  FROM told
 GROUP BY owner_id
 ORDER BY owner_id
