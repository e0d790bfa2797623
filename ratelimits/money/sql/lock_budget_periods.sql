-- Lock the budgets' periods that contain a time, and read their spent and held money.
--
-- params  budgets, keys: parallel arrays, each pair once; at: the time, seconds since 1970; all_or_none: if one period
--         is missing, lock none
-- locks   the periods, in the order of their ids
-- clock   none
-- returns a row for each period that is not missing: its id, the budget, key, amount and policy, what was spent and is
--         held
WITH there AS MATERIALIZED (
    SELECT period.id, budget.amount, budget.policy
      FROM unnest(%(budgets)s::bigint[], %(keys)s::text[]) AS given (id, key)
      JOIN ratelimits_budget AS budget ON budget.id = given.id
     CROSS JOIN (SELECT to_timestamp(%(at)s::float8) AS at) AS moment
      JOIN ratelimits_budgetperiod AS period
        ON period.budget_id = budget.id AND period.key = given.key AND period.starts_at = {{period_start budget}}
)
SELECT period.id, period.budget_id, period.key, there.amount, there.policy, period.spent, period.held
  FROM there JOIN ratelimits_budgetperiod AS period USING (id)
 WHERE NOT %(all_or_none)s::bool OR (SELECT count(*) FROM there) = cardinality(%(budgets)s::bigint[])
 ORDER BY period.id
   FOR UPDATE OF period
