-- Join, as `period`, the budget periods that pay for a call `job`, made at `at` by user `payer` in batch `payer_batch`.
-- While the database does not know a budget's zone, calls that were under way count in the last period that began.
JOIN ratelimits_budget AS budget ON budget.project_id = job.project_id
CROSS JOIN LATERAL (SELECT CASE budget.scope
                  WHEN 'project' THEN ''
                  WHEN 'each_user' THEN payer::text
                  WHEN 'user' THEN CASE WHEN payer = budget.user_id THEN '' END
                  WHEN 'batch' THEN CASE WHEN payer_batch = budget.batch_id THEN '' END END AS key) AS payer_of
JOIN ratelimits_budgetperiod AS period
  ON period.budget_id = budget.id AND period.key = payer_of.key
 AND period.starts_at = coalesce({{period_start budget}},
                                 (SELECT max(last.starts_at) FROM ratelimits_budgetperiod AS last
                                   WHERE last.budget_id = budget.id AND last.key = payer_of.key
                                     AND last.starts_at <= at AND last.starts_at > at - ('1 ' || budget.period)::interval))
