-- Begin the missing periods of budgets, each with the sum that the ledger already has for it.
--
-- params  budgets, keys: parallel arrays, each pair once; at: a time in the period, seconds since 1970
-- locks   the budgets, because no constraint prevents their deletion meanwhile; and those of the unique key
-- clock   none
-- returns the ids of the added periods; a budget whose zone the database does not know gets none
INSERT INTO ratelimits_budgetperiod (budget_id, project_id, key, starts_at, spent)
SELECT begun.id, begun.project_id, begun.key, begun.starts_at,
       -- The same calls as in paying_periods.sql. Each scope has its own index, because a claim waits for this.
       coalesce(CASE begun.scope
                WHEN 'project' THEN (SELECT sum(money) FROM ratelimits_spend
                                      WHERE project_id = begun.project_id AND at >= begun.starts_at)
                WHEN 'each_user' THEN (SELECT sum(money) FROM ratelimits_spend
                                        WHERE project_id = begun.project_id AND user_id = begun.key::uuid
                                          AND at >= begun.starts_at)
                WHEN 'user' THEN (SELECT sum(money) FROM ratelimits_spend
                                   WHERE project_id = begun.project_id AND user_id = begun.user_id
                                     AND at >= begun.starts_at)
                -- Without the subquery PostgreSQL 15 also uses the project's index, and reads all of that index.
                WHEN 'batch' THEN (SELECT sum(money)
                                     FROM (SELECT project_id, at, money FROM ratelimits_spend
                                            WHERE batch_id = begun.batch_id
                                           OFFSET 0) AS own
                                    WHERE project_id = begun.project_id AND at >= begun.starts_at) END, 0)
  FROM (SELECT budget.*, given.key, {{period_start budget}} AS starts_at
          FROM unnest(%(budgets)s::bigint[], %(keys)s::text[]) AS given (id, key)
          JOIN ratelimits_budget AS budget ON budget.id = given.id
         CROSS JOIN (SELECT to_timestamp(%(at)s::float8) AS at) AS moment
           FOR KEY SHARE OF budget) AS begun
 WHERE begun.starts_at IS NOT NULL
 ORDER BY begun.id, begun.key
    ON CONFLICT (budget_id, key, starts_at) DO NOTHING
RETURNING id
