-- Mark holds as lost if nobody will report the end of their calls. The caller then writes these calls into the ledger,
-- each at the most that it may have cost.
--
-- params  jobs, tokens (fencing): parallel arrays of calls whose executors have crashed; expired: the most other calls,
--         whose time is over, to mark
-- locks   the periods of budgets that pay for these calls, in the order of their ids, then the holds
-- clock   now(): the transaction's start
-- returns a row for each call: job, token, amount (micro-units), project, user, batch, provider, model, via; when it
--         was claimed (seconds since 1970); the locked periods of all calls
WITH gone AS MATERIALIZED (
    SELECT hold.* FROM ratelimits_budgethold AS hold
      JOIN unnest(%(jobs)s::uuid[], %(tokens)s::bigint[]) AS given (job, token)
        ON hold.job_id = given.job AND hold.token = given.token
     WHERE NOT hold.lost
     UNION
    (SELECT * FROM ratelimits_budgethold
      WHERE expires_at < {{now}} AND NOT lost
      ORDER BY expires_at
      LIMIT %(expired)s::int)
), locked AS MATERIALIZED (
    SELECT id FROM ratelimits_budgetperiod
     WHERE id IN (SELECT period_id FROM gone
                  UNION
                  SELECT period.id
                    FROM (SELECT project_id, user_id AS payer, batch_id AS payer_batch, at FROM gone) AS paid
                         {{paying_periods paid}})
     ORDER BY id
       FOR UPDATE
), lost AS (
    UPDATE ratelimits_budgethold AS hold SET lost = true
     WHERE id IN (SELECT id FROM gone) AND NOT lost
       AND (SELECT count(*) FROM locked) >= 0  -- locks all periods before the first hold
    RETURNING *
), taken AS (
    UPDATE ratelimits_budgetperiod AS period SET held = period.held - change.amount
      FROM (SELECT period_id, sum(amount) AS amount FROM lost GROUP BY period_id) AS change
     WHERE period.id = change.period_id
)
SELECT DISTINCT ON (job_id, token) job_id, token, amount, project_id, user_id, batch_id, provider, model, via,
       extract(epoch FROM at)::float8 AS at, (SELECT array_agg(id) FROM locked) AS periods
  FROM lost
 ORDER BY job_id, token
