-- Store the money that calls reserve of budgets before they go. This transaction has locked the budgets' periods.
--
-- params  periods, jobs, tokens (fencing), amounts (micro-units), projects, users, batches, providers, models, vias,
--         times (of the claims, seconds since 1970), holds (seconds until they are lost): parallel arrays
-- locks   none besides those held
-- clock   now(): the transaction's start
-- returns the periods whose sum changed
WITH given AS MATERIALIZED (
    SELECT * FROM unnest(%(periods)s::bigint[], %(jobs)s::uuid[], %(tokens)s::bigint[], %(amounts)s::bigint[],
                         %(projects)s::text[], %(users)s::uuid[], %(batches)s::uuid[], %(providers)s::text[],
                         %(models)s::text[], %(vias)s::text[], %(times)s::float8[], %(holds)s::float8[])
           AS given (period, job, token, amount, project, user_id, batch, provider, model, via, at, hold)
), noted AS (
    INSERT INTO ratelimits_budgethold
           (period_id, job_id, token, amount, project_id, user_id, batch_id, provider, model, via, at, expires_at)
    SELECT period, job, token, amount, project, user_id, batch, provider, model, via, to_timestamp(at),
           {{now}} + hold * interval '1 second'
      FROM given
)
UPDATE ratelimits_budgetperiod AS own SET held = own.held + change.amount
  FROM (SELECT period, sum(amount) AS amount FROM given GROUP BY period) AS change
 WHERE own.id = change.period
RETURNING own.id
