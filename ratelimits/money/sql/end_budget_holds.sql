-- Release the money that ended calls hold of budgets; in the same transaction insert_spend.sql writes the calls' costs.
--
-- params  jobs, tokens (fencing): parallel arrays; projects, users, batches, times (of the claims, seconds since 1970):
--         parallel arrays of the calls that the transaction writes into the ledger next
-- locks   the periods of the ended calls and of the next ledger rows, by id, then the holds. Transactions that lock
--         only the ledger's periods, or delete a budget, keep to this order, too
-- clock   none
-- returns the periods that are locked
WITH locked AS MATERIALIZED (
    SELECT id FROM ratelimits_budgetperiod
     WHERE id IN (SELECT hold.period_id
                    FROM unnest(%(jobs)s::uuid[], %(tokens)s::bigint[]) AS given (job, token)
                    JOIN ratelimits_budgethold AS hold ON hold.job_id = given.job AND hold.token = given.token
                  UNION
                  SELECT period.id
                    FROM (SELECT project_id, payer, payer_batch, to_timestamp(at) AS at
                            FROM unnest(%(projects)s::text[], %(users)s::uuid[], %(batches)s::uuid[],
                                        %(times)s::float8[]) AS given (project_id, payer, payer_batch, at)) AS paid
                         {{paying_periods paid}})
     ORDER BY id
       FOR UPDATE
), ended AS (
    DELETE FROM ratelimits_budgethold AS hold
     USING unnest(%(jobs)s::uuid[], %(tokens)s::bigint[]) AS given (job, token)
     WHERE hold.job_id = given.job AND hold.token = given.token
       AND (SELECT count(*) FROM locked) >= 0  -- locks all periods before the first hold
    RETURNING hold.period_id, hold.amount, hold.lost
), taken AS (
    UPDATE ratelimits_budgetperiod AS period SET held = period.held - change.amount
      FROM (SELECT period_id, sum(amount) AS amount FROM ended WHERE NOT lost GROUP BY period_id) AS change
     WHERE period.id = change.period_id
)
SELECT id FROM locked
